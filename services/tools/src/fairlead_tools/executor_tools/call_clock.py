"""The time that a call may take; it stands still while a person is asked."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar


class CallClock:
    """The limits of one call."""

    def __init__(self) -> None:
        self._limits: set[asyncio.Timeout] = set()
        self._left: dict[asyncio.Timeout, float] = {}  # while it stands still
        self._stops = 0

    @asynccontextmanager
    async def limit(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        """As `asyncio.timeout`, beside the time that the clock stands still.

        Raises:
            TimeoutError: it took longer.
        """
        async with asyncio.timeout(None if self._stops else seconds) as timeout:
            self._limits.add(timeout)
            if self._stops:
                self._left[timeout] = seconds
            try:
                yield timeout
            finally:
                self._limits.discard(timeout)
                self._left.pop(timeout, None)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """No time passes."""
        loop = asyncio.get_running_loop()
        self._stops += 1
        if self._stops == 1:
            for timeout in self._limits:
                if (when := timeout.when()) is not None and not timeout.expired():
                    self._left[timeout] = when - loop.time()
                    timeout.reschedule(None)
        try:
            yield
        finally:
            self._stops -= 1
            if not self._stops:
                for timeout, left_s in self._left.items():
                    timeout.reschedule(loop.time() + left_s)
                self._left.clear()


_CLOCK: ContextVar[CallClock | None] = ContextVar("_CLOCK", default=None)


def call_clock() -> CallClock:
    """That of the call that runs here."""
    if (clock := _CLOCK.get()) is None:
        clock = CallClock()
        _CLOCK.set(clock)
    return clock
