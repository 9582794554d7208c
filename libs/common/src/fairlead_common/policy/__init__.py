"""The language of rules and what is known of commands and paths: pure, no I/O and no clock."""
