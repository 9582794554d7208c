"""What `fairlead doctor` looks at."""
