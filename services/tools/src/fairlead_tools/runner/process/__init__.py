"""Processes: how a call gets one, what watches over it, what it prints, and what is left of it."""
