"""Runs: admitted, watched, finished, and kept."""
