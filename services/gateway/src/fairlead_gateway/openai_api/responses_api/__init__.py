"""The Responses API: a response is a prompt to a durable session, and its answer."""
