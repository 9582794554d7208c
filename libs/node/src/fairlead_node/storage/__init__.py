"""What is stored, what grows, and the removal of what nothing names any more."""
