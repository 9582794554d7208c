"""Executors of other machines: the door that they come through, tickets, and who was let in."""
