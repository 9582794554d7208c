"""Where the tools of the web put what is too large for a message."""

from typing import Protocol


class Store(Protocol):
    """Keeps pictures (`Objects`)."""

    async def put(self, data: bytes) -> str:
        """The name of what is stored."""
