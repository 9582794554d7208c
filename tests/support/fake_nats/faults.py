"""Faults that a test puts between clients and the server, by the subject of what is sent."""

import asyncio
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

from tests.support.fake_nats.matching import matches


class Fault(Enum):
    """What becomes of one message of a client."""

    LOST = "it never reaches the server"
    ANSWER_LOST = "the server acts on it; its answer never arrives"
    CUT_BEFORE = "the connection goes before the server has it"
    CUT_AFTER = "the server acts on it; the connection goes before the answer"
    DEAD_BEFORE = "its sender is dead before it leaves"
    DEAD_AFTER = "the server acts on it; its sender is dead by then"
    SERVER_KILLED = "the server acts on it and dies; it comes back a moment later"


class Rule:
    """A fault for the next messages that match."""

    def __init__(self, pattern: str, fault: Fault, client: str, times: int, after: int) -> None:
        self.pattern = pattern
        self.fault = fault
        self.client = client
        self.left = times
        self.skip = after
        self.hit = asyncio.Event()

    def takes(self, client: str, subject: str) -> bool:
        """Whether this message is to suffer the fault."""
        if self.left <= 0 or (self.client and self.client != client) or not matches(self.pattern, subject):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.left -= 1
        self.hit.set()
        return True


class Hold:
    """Messages that match wait at the server's door until they are released; a context manager."""

    def __init__(self, holds: list["Hold"], pattern: str, client: str, after: int) -> None:
        self._holds = holds
        self._pattern = pattern
        self._client = client
        self._skip = after
        self.reached = asyncio.Event()
        self._waiting: list[Callable[[], None]] = []

    def keep(self, action: Callable[[], None]) -> None:
        """Do it when all are released."""
        self._waiting.append(action)

    def takes(self, client: str, subject: str) -> bool:
        """Whether this message has to wait."""
        if (self._client and self._client != client) or not matches(self._pattern, subject):
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        self.reached.set()
        return True

    def release(self) -> None:
        """Let all go on, in order."""
        if self in self._holds:
            self._holds.remove(self)
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            asyncio.get_running_loop().call_soon(action)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Faults:
    """What is to go wrong next."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._holds: list[Hold] = []
        self.latency_s = 0.0  # of each message, to the server

    def add(self, pattern: str, fault: Fault, *, client: str = "", times: int = 1, after: int = 0) -> Rule:
        """The next `times` messages to subjects that match suffer `fault`.

        Args:
            client: only those of the connection of this name.
            after: so many messages pass before.
        """
        rule = Rule(pattern, fault, client, times, after)
        self._rules.append(rule)
        return rule

    def hold(self, pattern: str, *, client: str = "", after: int = 0) -> Hold:
        """Messages to subjects that match wait until the hold is released; arguments as of `add`."""
        hold = Hold(self._holds, pattern, client, after)
        self._holds.append(hold)
        return hold

    def holding(self, client: str, subject: str) -> Hold | None:
        """The hold that this message has to wait for."""
        return next((hold for hold in self._holds if hold.takes(client, subject)), None)

    def next(self, client: str, subject: str) -> Fault | None:
        """What this message suffers."""
        return next((rule.fault for rule in self._rules if rule.takes(client, subject)), None)
