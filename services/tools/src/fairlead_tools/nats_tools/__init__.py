"""Tools that others offer over NATS: micro services that say so, and subjects of the configuration."""
