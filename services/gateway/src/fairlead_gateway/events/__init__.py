"""Server-sent events: what happens in a session, and hints that a list has changed."""
