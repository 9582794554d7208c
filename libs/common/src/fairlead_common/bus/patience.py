"""Waiting for a server that is still starting."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fairlead_common.errors import BusUnavailableError

PAUSE_S = 0.1

Result = TypeVar("Result")


async def patiently(action: Callable[[], Awaitable[Result]], timeout_s: float = 60.0) -> Result:
    """Repeat `action` while the bus is not ready: the server may still be starting JetStream."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        try:
            return await action()
        except BusUnavailableError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(PAUSE_S)
