"""The NATS server of a home or a deployment: its configuration, its users, and the disk of its store."""
