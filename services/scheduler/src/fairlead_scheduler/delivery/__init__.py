"""Answers on their way to sessions, subjects and webhooks."""
