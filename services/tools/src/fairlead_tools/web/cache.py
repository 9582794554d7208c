"""Pages that were fetched a short while ago, so that turning the page does not fetch it again."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
CacheKey = tuple[str, ...]


class Cache(Generic[T]):
    """The newest entries, in memory, up to a size.

    Args:
        size_bytes: of one entry.
        now: seconds of a clock that does not jump.
    """

    def __init__(
        self,
        size_bytes: Callable[[T], int],
        limit_bytes: int = 32 << 20,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._size_bytes = size_bytes
        self._limit_bytes = limit_bytes
        self._now = now
        self._entries: OrderedDict[CacheKey, tuple[float, T]] = OrderedDict()
        self._held_bytes = 0

    def get(self, key: CacheKey, max_age_s: float) -> T | None:
        """The entry, if it is at most so old."""
        kept_at, entry = self._entries.get(key, (0.0, None))
        if entry is None or self._now() - kept_at > max_age_s:
            return None
        return entry

    def put(self, key: CacheKey, entry: T) -> None:
        """Keep `entry`, and drop the oldest ones for it."""
        self._drop(key)
        if self._size_bytes(entry) > self._limit_bytes:
            return
        self._entries[key] = (self._now(), entry)
        self._held_bytes += self._size_bytes(entry)
        while self._held_bytes > self._limit_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: CacheKey) -> None:
        before = self._entries.pop(key, None)
        if before is not None:
            self._held_bytes -= self._size_bytes(before[1])
