"""Keeps the conversation within the model's window: what of it is replaced by a summary, and by which one."""
