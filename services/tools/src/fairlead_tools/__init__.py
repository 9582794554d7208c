"""Executors: claims, workspaces, the runner and the built-in tools."""
