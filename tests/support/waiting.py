"""Waiting for something that comes by itself: the only place where tests look again and again.

eventually(lambda: path.exists(), "the file is written")
found = await until(lambda: rows(bus), "a row")
"""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, Final

WAIT_S: Final = 40.0  # has room for a busy machine: what holds is seen at once, whatever this is
_PAUSE_S: Final = 0.02

What = str | Callable[[], str]


def _missed(what: What, within_s: float, last: object) -> str:
    told = what if isinstance(what, str) else what()
    return f"not within {within_s:g} s: {told}; last: {last!r:.500}"


def eventually(condition: Callable[[], Any], what: What = "it holds", within_s: float = WAIT_S) -> Any:
    """What `condition` gives as soon as that is true.

    Args:
        what: is waited for; a function is asked when it did not come.

    Raises:
        AssertionError: it did not within `within_s`.
    """
    end = time.monotonic() + within_s
    while not (last := condition()):
        assert time.monotonic() < end, _missed(what, within_s, last)
        time.sleep(_PAUSE_S)
    return last


async def until(condition: Callable[[], Any], what: What = "it holds", within_s: float = WAIT_S) -> Any:
    """The same in an event loop. `condition` may be a coroutine function; it is cut off when time is over."""
    last: Any = None
    try:
        async with asyncio.timeout(within_s):
            while True:
                found = condition()
                last = await found if inspect.isawaitable(found) else found
                if last:
                    return last
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise AssertionError(_missed(what, within_s, last)) from None
