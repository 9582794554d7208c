"""What every scenario is given: a running stack, a client, and the log of the model."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.client import Answered, Client, Watch
from bench.machine import Profiler
from tests.chaos.stack import Shape, Stack
from tests.support.scripted_model import read_log

Json = dict[str, Any]


@dataclass
class Options:
    """From the command line."""

    work: Path
    quick: bool = False
    workers: str = ""
    profile: Path | None = None
    count: int = 10_000
    sets: tuple[str, ...] = ()
    nats: str = ""  # of a server that the scenario runs; empty: the stack starts one

    def scaled(self, number: int) -> int:
        """A fifth of it in a quick run."""
        return max(2, number // 5) if self.quick else number


@dataclass
class Setting:
    """One running stack and its client."""

    stack: Stack
    client: Client
    options: Options
    name: str
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def new_name(self, kind: str = "b") -> str:
        return f"{kind}{next(self._numbers)}"

    def profiler(self) -> Profiler:
        folder = self.options.profile
        return Profiler(self.stack, None if folder is None else folder / self.name)

    def model_log(self) -> list[Json]:
        return read_log(self.stack.model.log)

    async def ask(self, watch: Watch, session: str, text: str) -> Answered:
        """Prompt and wait for the end; it must have been completed."""
        await self.client.prompt(session, text)
        answer = await watch.answer()
        assert answer.outcome == "completed", f"{session}: {answer.outcome}"
        return answer


@asynccontextmanager
async def setting(name: str, options: Options) -> AsyncIterator[Setting]:
    """A fresh stack for one scenario."""
    # The scripted model has no window: long histories are part of what is measured.
    window = "agents.main.context_window=1000000000"
    shape = Shape(workers=options.workers, sets=(window, *options.sets), nats=options.nats)
    stack = Stack(options.work / name, shape, fsync_model=False)
    await asyncio.to_thread(stack.__enter__)
    try:
        assert stack.up is not None
        async with Client(stack.up.base_url, stack.up.token) as client:
            yield Setting(stack, client, options, name)
    finally:
        await asyncio.to_thread(stack.__exit__, None, None, None)


def requests_and_answers(log: list[Json]) -> list[tuple[Json, Json]]:
    """Each request that the model answered, with the answer."""
    answers = {line["n"]: line for line in log if line["event"] == "answer"}
    return [(line, answers[line["n"]]) for line in log if line["event"] == "request" and line["n"] in answers]
