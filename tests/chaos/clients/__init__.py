"""Clients of a chaos run beside the driver: each behaves as one kind of real client does."""
