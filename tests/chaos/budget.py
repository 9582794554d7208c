"""The budget of a day under kills: many workers and sessions share it, and workers are killed all the time.

    python -m tests.chaos.budget --workers 8 --sessions 200 --kills 100 --limit-usd 3

Afterwards the ledger is read by itself and compared with the logs of all sessions and with what the server of
the model was asked: no reservation that was spent passed the limit, no request was sent without one, what is
known is the sum of what the replies cost, and the rest is shown as unknown.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.budget_entries import BudgetSettlementEntry
from fairlead_common.protocol.content import AssistantMessage
from fairlead_common.protocol.entries import Entry, MessageEntry, RunEndEntry
from fairlead_common.protocol.messages import UserInput
from fairlead_common.session_log.records import entries_in
from tests.support.nats_server import NatsServer
from tests.support.scripted_model import ScriptedModel

MODEL: Final = "openai/scripted"
MICRO: Final = 1_000_000
_ENDS: Final = frozenset({"completed", "waiting_budget", "budget", "failed"})


class Figures(NamedTuple):
    """What a run of the scenario came to; money in micro-dollars."""

    requests: int
    granted: int
    refused: int
    known: int
    unknown: int
    still_open: int
    most: int
    replies: int
    settled_unknown: int
    outcomes: dict[str, int]
    errors: dict[str, int]
    took_s: float


class Workers:
    """Processes of the agent service, killed and started again."""

    def __init__(self, count: int, environ: dict[str, str]) -> None:
        self._environ = environ
        self._running = [self._start(number) for number in range(count)]
        self.kills = 0

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        environ = {**self._environ, "FAIRLEAD_WORKER": f"agent-{number}"}
        return subprocess.Popen(
            [sys.executable, "-m", "fairlead_agent.main"],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill_one(self) -> None:
        number = random.randrange(len(self._running))
        self._running[number].kill()
        self._running[number].wait(timeout=10)
        self._running[number] = self._start(number)
        self.kills += 1

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait(timeout=10)


async def scenario(folder: Path, workers: int, sessions: int, kills: int, limit_usd: float) -> Figures:
    """Play it on a server of its own, and read what came of it."""
    started = time.monotonic()
    nats = NatsServer(folder / "nats").start()
    model = await ScriptedModel(folder / "model.jsonl").start()
    bus = await Bus.connect(BusSettings(url=nats.url), name="chaos")
    await provision(bus)
    settings = {
        "models.default": MODEL,
        "models.entries": {
            MODEL: {"input_usd_per_mtok": 10, "output_usd_per_mtok": 100, "max_output_tokens": 1500}
        },
        "agents.main.budget": {"usd_per_day": limit_usd},
        "agents.main.mode": "allow-all",
    }
    environ = {
        **os.environ,
        "FAIRLEAD_NATS_URL": nats.url,
        "FAIRLEAD_HOME": str(folder / "home"),
        "FAIRLEAD_OVERRIDES": json.dumps(settings),
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "test",
    }
    running = Workers(workers, environ)
    names = [f"s{number}" for number in range(sessions)]
    try:
        waiting = list(names)
        while waiting or running.kills < kills:  # the prompts come while workers are killed
            for name in waiting[: 1 + len(names) // max(kills, 1)]:
                body = UserInput(text=f"op=P{name} say 60 tokens rate=20")
                await bus.create(s.SESSIONS, s.mail(name, "prompt", name), msgspec.json.encode(body))
            del waiting[: 1 + len(names) // max(kills, 1)]
            if running.kills < kills:
                await asyncio.sleep(random.uniform(0.1, 1.5))
                running.kill_one()
        await _until_over(bus, names)
        return await _figures(bus, names, folder / "model.jsonl", limit_usd, time.monotonic() - started)
    finally:
        running.end()
        await bus.close()
        await model.stop()
        nats.kill()


async def _until_over(bus: Bus, names: list[str]) -> None:
    left = set(names)
    async with asyncio.timeout(900):
        while left:
            for name in sorted(left):
                last = await bus.last(s.SESSIONS, s.session_log(name))
                if last is not None and last.headers.get(s.H_STATE) in ("closed", "parked"):
                    left.discard(name)
            await asyncio.sleep(1)
    await asyncio.sleep(5)  # what was settled last is in the ledger


async def _log(bus: Bus, name: str) -> list[Entry]:
    return [
        each.read()
        async for record in bus.read(s.SESSIONS, s.session_log(name))
        for each in entries_in(record.seq, record.data, record.headers)
    ]


async def _figures(bus: Bus, names: list[str], asked: Path, limit_usd: float, took_s: float) -> Figures:
    logs = [await _log(bus, name) for name in names]
    entries = [entry for log in logs for entry in log]
    replies = [
        each.message
        for each in entries
        if isinstance(each, MessageEntry) and isinstance(each.message, AssistantMessage)
    ]
    unknown = [each for each in entries if isinstance(each, BudgetSettlementEntry) and not each.known]
    ends = [next(each for each in reversed(log) if isinstance(each, RunEndEntry)) for log in logs]
    outcomes = {name: sum(end.outcome == name for end in ends) for name in sorted(_ENDS)}
    spent: dict[str, int] = {"known": 0, "unknown": 0, "most": 0, "granted": 0, "refused": 0}
    reserved: dict[str, int] = {}
    void: set[str] = set()
    async for record in bus.read(s.BUDGETS, "fairlead.budget.>"):
        *_, name, kind = record.subject.split(".")
        _fold(kind, name, msgspec.json.decode(record.data), reserved, void, spent, round(limit_usd * MICRO))
    lines = [json.loads(line) for line in asked.read_text().splitlines()]
    return Figures(
        requests=sum(line["event"] == "request" for line in lines),
        granted=spent["granted"],
        refused=spent["refused"],
        known=spent["known"],
        unknown=spent["unknown"],
        still_open=sum(reserved.values()),
        most=spent["most"],
        replies=sum(reply.cost_micro_usd or 0 for reply in replies),
        settled_unknown=sum(each.micro_usd for each in unknown),
        outcomes=outcomes,
        errors=dict(Counter(end.error or "" for end in ends if end.outcome == "failed")),
        took_s=took_s,
    )


def _fold(
    kind: str,
    name: str,
    value: dict[str, Any],
    reserved: dict[str, int],
    void: set[str],
    spent: dict[str, int],
    limit: int,
) -> None:
    """Take over one record of the ledger, by the rule alone and without the code that is tested."""
    total = spent["known"] + spent["unknown"] + sum(reserved.values())
    if kind == "reserve" and name not in void and total + value["micro_usd"] <= limit:
        reserved[name] = value["micro_usd"]
        spent["granted"] += 1
        spent["most"] = max(spent["most"], total + value["micro_usd"])
    elif kind == "reserve":
        spent["refused"] += 1
    elif name in reserved:
        amount = reserved.pop(name)
        cost = value.get("micro_usd")
        spent["known" if value.get("known") else "unknown"] += amount if cost is None else cost
    else:
        void.add(name)


def wrong(figures: Figures, limit_usd: float) -> list[str]:
    """What of the promise does not hold."""
    limit = round(limit_usd * MICRO)
    problems = []
    if figures.most > limit:
        problems.append(f"spent and reserved came to {figures.most}, the limit is {limit}")
    if figures.requests > figures.granted:
        problems.append(f"{figures.requests} requests, but {figures.granted} reservations")
    if figures.known != figures.replies:
        problems.append(f"the ledger knows {figures.known}, the replies cost {figures.replies}")
    if figures.unknown != figures.settled_unknown:
        problems.append(f"unknown: {figures.unknown} in the ledger, {figures.settled_unknown} in the logs")
    if figures.still_open:
        problems.append(f"{figures.still_open} are still reserved")
    return problems


def main() -> None:
    """Run the scenario, print the figures, and exit with 1 if the promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--limit-usd", type=float, default=3.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        figures = asyncio.run(
            scenario(Path(folder), given.workers, given.sessions, given.kills, given.limit_usd)
        )
        for name, value in figures._asdict().items():
            print(f"{name:16} {value}")
        problems = wrong(figures, given.limit_usd)
        print("\n".join(problems) or "the promise holds")
        sys.exit(bool(problems))


if __name__ == "__main__":
    main()
