"""Access from outside to the NATS server of an installation: executors of other machines, other systems."""
