"""Users, their rights, and what they may do with which session."""
