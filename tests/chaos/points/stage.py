"""What a scene has at hand, and what it is."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.api import Api
from tests.chaos.driver import Driver, Load
from tests.chaos.evidence import Journal, read_lines
from tests.chaos.oracle import Violation
from tests.chaos.stack import Stack, innermost, is_gone, send
from tests.support.waiting import until

PATIENCE_S = 20.0
QUIET = Load(sessions=1, asking_sessions=0, model_trouble=0, follow_up=0, steer=0, abort=0, again=0, deny=0)
NO_SESSION = Load(sessions=0, deny=0)


@dataclass
class Stage:
    """What a scene has at hand.

    Fields:
        arm: from when on the point may be hit; until it is called nothing happens there.
        hit: set once the point was passed, and what was to be done there was done.
        problems: what the scene itself saw go wrong.
    """

    driver: Driver
    api: Api
    stack: Stack
    tag: str
    faults: Journal
    arm: Callable[[], None]
    hit: asyncio.Event = field(default_factory=asyncio.Event)
    problems: list[Violation] = field(default_factory=list)

    @property
    def session(self) -> str:
        """The one that the scene talks to."""
        return next(iter(self.driver.modes))

    async def prompt(self, words: str, kind: str = "prompt", **fields: Any) -> tuple[str, str]:
        """Say something with an op of its own; the op and the key."""
        op = self.driver.name("P")
        return op, await self.driver.say(self.session, kind, f"op={op} {words}", **fields)

    async def settled(self, key: str) -> None:
        """Until an input has ended, or much too long."""
        await self.driver.until_settled(self.session, key, time.monotonic() + PATIENCE_S)

    async def say(self, words: str, **fields: Any) -> str:
        """The same, until it has ended; the op."""
        op, key = await self.prompt(words, **fields)
        await self.settled(key)
        return op

    async def asked(self, op: str) -> None:
        """Until the model was asked about it."""
        log = self.stack.folder / "model.jsonl"
        await until(lambda: any(line.get("plan") == op for line in read_lines(log)), f"the model hears {op}")

    async def started(self, op: str) -> None:
        """Until its command is under way."""
        await until(lambda: _runs(op), f"{op} is under way")

    async def kill(self, target: str) -> None:
        """kill -9 of all replicas of a service, or of all runners (`idle runner`)."""
        if target.endswith("runner"):
            pids = [innermost(each).pid for each in self.stack.runners()]
        else:
            named = self.stack.services()
            pids = [pid for name, pid in named.items() if name.partition("-")[0] == target]
        for pid in pids:
            sent = send(pid, signal.SIGKILL)
            await until(lambda pid=pid: is_gone(pid), f"{pid} is gone")  # type: ignore[misc]
            self.faults.write({"kind": "kill", "target": target, "landed": sent, "pid": pid})


def _runs(op: str) -> bool:
    word = op.encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if any(part.startswith(word) for part in (folder / "cmdline").read_bytes().split(b"\0")):
                    return True
            except OSError:
                continue
    return False


@dataclass(frozen=True)
class Scene:
    """What is played, to which audience."""

    play: Callable[[Stage], Coroutine[None, None, None]]
    load: Load = QUIET
