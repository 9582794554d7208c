"""The platform on one machine: what runs it, looks after it, and keeps what it stored."""
