"""Processes of calls: launch, supervision, output, and cleanup."""
