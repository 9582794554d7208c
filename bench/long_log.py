"""A session with a long log: what its first request costs an agent that never saw it, and what it holds.

A session of 100 entries is asked beside it, by the same process: what both cost is the price of a session
that no worker holds, and of the machine at that moment.
"""

import asyncio
import time
from dataclasses import replace
from typing import NamedTuple

import psutil

from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options, Setting, setting
from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.branch_entries import CompactionEntry
from fairlead_common.protocol.content import AssistantMessage, TextBlock, UserMessage
from fairlead_common.protocol.entries import Entry, MessageEntry, RunEndEntry, RunStartEntry
from fairlead_common.protocol.entry_codec import encode_entry
from tests.support.nats_server import NatsServer

MS = 1_000_000
ENTRIES = 100_000
RUNS_BETWEEN_SUMMARIES = 250
LONG, SHORT = "long", "short"
SHORT_ENTRIES = 100
_AT_ONCE = 500


async def long_log(options: Options) -> Result:
    """The first request in a session of 100,000 entries, for a worker that has never seen it."""
    count = ENTRIES // 10 if options.quick else ENTRIES
    server = NatsServer(options.work / "nats").start()
    try:
        bus = await Bus.connect(BusSettings(url=server.url), name="bench")
        await provision(bus)
        await _write(bus, LONG, count)
        await _write(bus, SHORT, SHORT_ENTRIES)
        async with setting("long-log", replace(options, nats=server.url)) as here:
            folded = await _first_request(here, LONG)
            await _stored(bus)
            snapshot = await bus.last(s.SNAPSHOTS, s.snapshot(LONG))
            cold = [await _after_restart(here, number) for number in range(options.scaled(20))]
        await bus.close()
    finally:
        server.kill()
    long, short = ([each[name] for each in cold] for name in (LONG, SHORT))
    found: Json = {
        "entries": count,
        "folded_ms": round(folded, 1),
        "cold": spread([each.ms for each in long]),
        "cold_short": spread([each.ms for each in short]),
        "ratio": spread([a.ms / b.ms for a, b in zip(long, short, strict=True)]),
        "held_mb": spread([each.mb for each in long]),
        "held_short_mb": spread([each.mb for each in short]),
        "snapshot_bytes": len(snapshot.data) if snapshot else 0,
    }
    ms, mb = "of a session of 100 entries, beside it", "of the session of 100 entries"
    rows = [
        Row(f"first request, {count:,} entries, the whole log read", found["folded_ms"], "ms"),
        Row("first request of a new agent process, from the snapshot, p50", found["cold"]["p50"], "ms", 50.0),
        Row("  p99", found["cold"]["p99"], "ms"),
        Row(f"  {ms}, p50", found["cold_short"]["p50"], "ms"),
        Row("  ratio of the two, p50", found["ratio"]["p50"], "x"),
        Row("memory of the process that the session adds, p50", found["held_mb"]["p50"], "MB"),
        Row(f"  {mb}, p50", found["held_short_mb"]["p50"], "MB"),
        Row("the snapshot", round(found["snapshot_bytes"] / 1024, 1), "KiB"),
    ]
    return rows, found


class Cold(NamedTuple):
    """The first request in a session for a process that never saw it, and what it then holds."""

    ms: float
    mb: float


async def _write(bus: Bus, session: str, count: int) -> None:
    """A log as an agent writes it: runs of one answer each, and now and then a summary."""
    subject = s.session_log(session)
    parent: str | None = None
    number = 0
    waiting = []
    said: list[str] = []
    while number < count:
        said.append(_id(number + 1))  # the user message behind the run's start
        for entry in _run(number, said[-2] if len(said) % RUNS_BETWEEN_SUMMARIES == 0 else ""):
            placed = _placed(entry, number, parent)
            headers = {"Fairlead-Id": placed.id, s.H_CURSOR: "0", s.H_STATE: "closed"}
            waiting.append(bus.publish(subject, encode_entry(placed), headers, timeout_s=60.0))
            parent, number = placed.id, number + 1
        if len(waiting) >= _AT_ONCE:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)


def _run(number: int, first_kept: str) -> list[Entry]:
    words = [TextBlock(text=f"{number}: " + "words of a message " * 8)]
    entries: list[Entry] = [
        RunStartEntry(id="", agent="main", model="openai/scripted", mode="allow-all"),
        MessageEntry(id="", message=UserMessage(content=list(words))),
        MessageEntry(id="", message=AssistantMessage(content=list(words), model="openai/scripted")),
        RunEndEntry(id="", outcome="completed", turns=1),
    ]
    if first_kept:
        summary = "What was said so far. " * 100
        entries.append(CompactionEntry(id="", first_kept=first_kept, summary=summary))
    return entries


def _id(number: int) -> str:
    return f"e{number:07}"


def _placed(entry: Entry, number: int, parent: str | None) -> Entry:
    made = entry.__struct_fields__
    fields = {name: getattr(entry, name) for name in made}
    fields |= {"id": _id(number), "parent_id": parent, "ts": 1_700_000_000_000 + number}
    fields |= {"run_id": f"r{number // 4}"}
    return type(entry)(**fields)


async def _first_request(here: Setting, session: str) -> float:
    """Milliseconds from the POST to the model's receipt of the request."""
    name = here.new_name()
    async with here.client.watch(session) as watch:
        began = time.monotonic_ns()
        await here.ask(watch, session, f"id={name} say 8 tokens")
    received = next(
        line["t"] for line in here.model_log() if line["event"] == "request" and line["seen"][-1:] == [name]
    )
    return float(received - began) / MS


async def _stored(bus: Bus) -> None:
    """Wait for the snapshot: it is written once the session is idle."""
    async with asyncio.timeout(30):
        while await bus.last(s.SNAPSHOTS, s.snapshot(LONG)) is None:
            await asyncio.sleep(0.05)


async def _after_restart(here: Setting, number: int) -> dict[str, Cold]:
    """The two sessions, one after the other, for a process that has served other sessions; by turns."""
    up = here.stack.up
    assert up is not None
    up.kill("agent")
    await asyncio.to_thread(up.wait_restarted, "agent")
    for _ in range(2):  # the process is warm, and the sessions are not
        other = await here.client.session(here.new_name("other"))
        async with here.client.watch(other) as watch:
            await here.ask(watch, other, "say 1 tokens")
    found: dict[str, Cold] = {}
    for session in (LONG, SHORT) if number % 2 else (SHORT, LONG):
        before = _own_mb(here)
        ms = await _first_request(here, session)
        found[session] = Cold(ms, _own_mb(here) - before)
    return found


def _own_mb(here: Setting) -> float:
    """Memory of the agent's process that it shares with none, in MB."""
    pid = next(pid for name, pid in here.stack.services().items() if name.startswith("agent"))
    return float(psutil.Process(pid).memory_full_info().uss) / 1e6
