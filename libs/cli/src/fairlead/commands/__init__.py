"""One module a command, loaded when it is called."""
