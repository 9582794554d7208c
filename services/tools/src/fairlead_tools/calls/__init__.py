"""Calls on their way from a request to the one result: claimed, given to a runner or run here, reported."""
