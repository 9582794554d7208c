"""The front door: HTTP, server-sent events, the OpenAI-compatible API, authentication."""
