"""Answers to requests of other services, outside of sessions."""
