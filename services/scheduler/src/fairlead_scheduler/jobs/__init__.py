"""Jobs: defined, stored, and kept in a table of what is due when."""
