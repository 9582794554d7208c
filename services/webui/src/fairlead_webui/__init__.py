"""Serves the files of the web application over NATS."""
