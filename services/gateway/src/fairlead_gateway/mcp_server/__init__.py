"""The MCP server: prompts, approvals and transcripts for programs that speak the Model Context Protocol."""
