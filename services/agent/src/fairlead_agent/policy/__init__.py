"""May this tool call run: rules, modes, what the session has read, what people granted."""
