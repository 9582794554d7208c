"""Backups: what a Fairlead knows in one file, and back again."""
