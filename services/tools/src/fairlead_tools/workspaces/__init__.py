"""Folders that sessions work in: found, made, and removed."""
