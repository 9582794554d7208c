"""Jobs, wake-ups and hooks, passed on to the scheduler."""
