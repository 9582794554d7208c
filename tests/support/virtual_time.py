"""An event loop whose time jumps: when all wait, it is at once the time that the first waits for.

For tests in which everything happens in one process. Thirty seconds of retries take a millisecond, and what
happens first is decided by the times that the code asks for, not by the load of the machine. While a thread
works time stands still.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

EPOCH_S = 1_800_000_000.0  # what the wall clock shows when a loop begins
_STUCK_S = 20.0
# Time goes on while something runs, too: a loop fires timers that are due within the resolution of its
# clock, and what waits again for the rest of such a time would otherwise do so for ever.
_TICK_S = 1e-9


class _Selector(selectors.DefaultSelector):
    """Waits for the operating system only while a thread works."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        self.now_s += _TICK_S
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.threads or timeout is None:
            ready = super().select(_STUCK_S)
            if not ready and timeout is None:
                raise RuntimeError("all wait, and nothing will ever wake them")
            return ready
        self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose `time` begins at 1,000 s and jumps."""

    def __init__(self) -> None:
        self._jumping = _Selector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds; they have no relation to any clock."""
        return 1_000.0 + self._jumping.now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """See the library; time stands still until it is done."""
        self._jumping.threads += 1
        future = super().run_in_executor(executor, func, *args)

        def done(_: object) -> None:
            self._jumping.threads -= 1

        future.add_done_callback(done)
        return future


@contextmanager
def wall_clock_follows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`time.time` and its kin show the time of the running loop, if it is a virtual one."""
    real: Mapping[str, Callable[[], float]] = {"time": time.time, "monotonic": time.monotonic}

    def loop_s() -> float | None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        return loop.time() if isinstance(loop, VirtualLoop) else None

    def wall_s() -> float:
        now = loop_s()
        return real["time"]() if now is None else EPOCH_S + now

    def monotonic_s() -> float:
        now = loop_s()
        return real["monotonic"]() if now is None else now

    with monkeypatch.context() as patch:
        patch.setattr(time, "time", wall_s)
        patch.setattr(time, "time_ns", lambda: int(wall_s() * 1e9))
        patch.setattr(time, "monotonic", monotonic_s)
        patch.setattr(time, "monotonic_ns", lambda: int(monotonic_s() * 1e9))
        yield
