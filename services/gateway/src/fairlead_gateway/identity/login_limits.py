"""How often passwords may be tried. Counted by each gateway for itself."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from fairlead_gateway.http.problems import Problem

log = structlog.get_logger()

FREE_TRIES: Final = 5  # of one account from one address, before each further one has to wait
LONGEST_PAUSE_S: Final = 900.0
FORGET_S: Final = 3600.0
# Of one account from all addresses together: whoever uses many keeps its owner out of this way in at most for
# a minute at a time.
MAX_OF_ACCOUNT: Final = 30
WINDOW_S: Final = 60.0
MAX_KEPT: Final = 10_000


class _Tries:
    __slots__ = ("count", "last_at", "until")

    def __init__(self) -> None:
        self.count = 0
        self.last_at = 0.0
        self.until = 0.0


class LoginLimits:
    """Tries lately, by account and address. A try counts as failed until it is known to be right."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pairs: dict[tuple[str, str], _Tries] = {}
        self._accounts: dict[str, deque[float]] = {}

    def begin(self, account: str, address: str) -> None:
        """Note a try, before anything is computed for it: many at once count as many.

        Raises:
            Problem: 429, it has to wait. The same for names that nobody has.
        """
        now = self._clock()
        if len(self._pairs) >= MAX_KEPT or len(self._accounts) >= MAX_KEPT:
            self._forget(now)
        tries = self._pairs.setdefault((account, address), _Tries())
        if now - tries.last_at > FORGET_S:
            tries.count = 0
        if (left := tries.until - now) > 0:
            raise _wait(left)
        of_account = self._accounts.setdefault(account, deque(maxlen=MAX_OF_ACCOUNT))
        if len(of_account) == MAX_OF_ACCOUNT and (left := of_account[0] + WINDOW_S - now) > 0:
            raise _wait(left)
        of_account.append(now)
        tries.count += 1
        tries.last_at = now
        if tries.count >= FREE_TRIES:
            tries.until = now + min(2.0 ** (tries.count - FREE_TRIES), LONGEST_PAUSE_S)
            if tries.count == FREE_TRIES:
                log.warning("password_tries_paused", address=address)

    def succeeded(self, account: str, address: str) -> None:
        """The last try was right: earlier ones from this address are forgotten."""
        self._pairs.pop((account, address), None)
        of_account = self._accounts.get(account)
        if of_account:
            of_account.pop()

    def _forget(self, now: float) -> None:
        self._pairs = {k: t for k, t in self._pairs.items() if max(t.until, t.last_at + WINDOW_S) > now}
        self._accounts = {k: t for k, t in self._accounts.items() if t and t[-1] + WINDOW_S > now}
        if len(self._pairs) >= MAX_KEPT:  # an attack from many addresses: those that wait longest stay
            longest = sorted(self._pairs.items(), key=lambda each: each[1].until, reverse=True)
            self._pairs = dict(longest[: MAX_KEPT // 2])
        if len(self._accounts) >= MAX_KEPT:
            fullest = sorted(self._accounts.items(), key=lambda each: len(each[1]), reverse=True)
            self._accounts = dict(fullest[: MAX_KEPT // 2])


def _wait(left: float) -> Problem:
    seconds = int(left) + 1
    text = f"too many wrong passwords: wait {seconds} s, or log in another way"
    return Problem(429, text, headers={"Retry-After": str(seconds)})
