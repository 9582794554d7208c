"""Jobs, heartbeats and wake-ups."""
