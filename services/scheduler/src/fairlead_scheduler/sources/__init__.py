"""What sets jobs and sessions going from outside."""
