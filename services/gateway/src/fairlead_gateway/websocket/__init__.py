"""The WebSocket API: requests to all operations, and events, over one connection."""
