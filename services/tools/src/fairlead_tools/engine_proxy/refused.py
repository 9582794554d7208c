"""What is answered instead of asking the engine."""


class RefusedError(Exception):
    """An executor has no need of this."""
