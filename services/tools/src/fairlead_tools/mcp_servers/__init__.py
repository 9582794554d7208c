"""Tools of MCP servers. Only `sdk.py` imports the SDK, and it is imported once a server is configured."""
