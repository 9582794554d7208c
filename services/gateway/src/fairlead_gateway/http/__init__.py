"""The HTTP server, who may ask it, how requests are read, and what belongs to no session."""
