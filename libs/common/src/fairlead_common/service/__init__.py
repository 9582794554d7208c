"""What every service process shares: its skeleton, its logs, its configuration, what it hides."""
