"""Sessions and the agent loop: context, models, permissions, tool calls."""
