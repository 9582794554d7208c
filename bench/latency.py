"""How long things take that people wait for: first token, tool call, growing sessions, starts, crashes."""

import asyncio
import os
import shutil
import signal
import time

import psutil

from bench.client import Answered, Watch
from bench.machine import cpu_ms, spent
from bench.report import Row, spread
from bench.setting import Json, Options, Setting, requests_and_answers, setting
from tests.chaos.api import Api
from tests.chaos.stack import Shape, Stack

Result = tuple[list[Row], Json]
MS = 1e6


async def ttft(options: Options) -> Result:
    """Added time to the first token: client's POST to model, plus model's first byte to client."""
    async with setting("ttft", options) as here:
        session = await here.client.session("warm")
        async with here.client.watch(session) as watch:
            for _ in range(5):
                await _timed(here, watch, session)
        opening, fresh = [], []
        for _ in range(options.scaled(100)):
            began = time.monotonic_ns()
            name = await here.client.session(here.new_name("fresh"))
            opening.append((time.monotonic_ns() - began) / MS)
            async with here.client.watch(name) as watch:
                fresh.append(await _timed(here, watch, name))
        turns = options.scaled(300)
        async with here.client.watch(session) as watch:
            before = cpu_ms(here.stack)
            with here.profiler():
                warm = [await _timed(here, watch, session) for _ in range(turns)]
            cost = spent(before, cpu_ms(here.stack), turns)
        await asyncio.sleep(0.2)
        pairs = requests_and_answers(here.model_log())
        seen = {asked["seen"][-1]: (asked, answered) for asked, answered in pairs}
    rows, raw = [], {}
    for label, timed, limit in (("warm", warm, 8.0), ("fresh session", fresh, 15.0)):
        parts = [_parts(began, *seen[name], got) for name, began, got in timed]
        found = {part: spread([each[part] for each in parts]) for part in ("added", "up", "down", "turn")}
        raw[label] = found
        rows += [
            Row(f"added time to first token, {label}, p50", found["added"]["p50"], "ms", limit),
            Row(f"added time to first token, {label}, p99", found["added"]["p99"], "ms", 25.0),
            Row(f"  up, {label}, p50 (POST to model)", found["up"]["p50"], "ms"),
            Row(f"  down, {label}, p50 (model to client)", found["down"]["p50"], "ms"),
            Row(f"  turn of 8 tokens, {label}, p50", found["turn"]["p50"], "ms"),
        ]
    rows += [
        Row("opening a session, p50", spread(opening)["p50"], "ms"),
        Row("CPU per warm turn", cost["all"], "ms", note=where(cost)),
    ]
    return rows, {**raw, "opening": spread(opening), "cpu_ms": cost}


async def _timed(here: Setting, watch: Watch, session: str) -> tuple[str, int, Answered]:
    """Name of a prompt of 8 tokens, when it was sent, and what came."""
    name = here.new_name()
    began = time.monotonic_ns()
    return name, began, await here.ask(watch, session, f"id={name} say 8 tokens")


def _parts(began: int, asked: Json, answered: Json, got: Answered) -> dict[str, float]:
    """Milliseconds added in all, up, down, and of the whole turn."""
    up, down = asked["t"] - began, got.first_ns - answered["first"]
    return {
        "added": (up + down) / MS,
        "up": up / MS,
        "down": down / MS,
        "turn": (got.end_ns - began) / MS,
    }


def where(cost: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.1f}" for name, value in cost.items() if name != "all" and value >= 0.05)


async def tool(options: Options) -> Result:
    """What a tool call costs: the gap between two model requests, with `true` as the command."""
    async with setting("tool", options) as here:
        session = await here.client.session("tools")
        async with here.client.watch(session) as watch:
            await here.ask(watch, session, f"op={here.new_name()} steps=3 run=true")
            before = cpu_ms(here.stack)
            rounds, steps = options.scaled(10), 20
            names = [here.new_name() for _ in range(rounds)]
            with here.profiler():
                for name in names:
                    await here.ask(watch, session, f"op={name} steps={steps} run=true")
            cost = spent(before, cpu_ms(here.stack), rounds * steps)
        gaps = []
        last: dict[str, int] = {}
        for asked, answered in requests_and_answers(here.model_log()):
            if asked["plan"] in names:
                if asked["plan"] in last:
                    gaps.append((asked["t"] - last[asked["plan"]]) / MS)
                last[asked["plan"]] = answered["t"]
    found = spread(gaps)
    rows = [
        Row("tool call `true`, p50", found["p50"], "ms", 10.0),
        Row("tool call `true`, p99", found["p99"], "ms"),
        Row("CPU per tool call (with the model request)", cost["all"], "ms", note=where(cost)),
    ]
    return rows, {"gap": found, "cpu_ms": cost}


async def growth(options: Options) -> Result:
    """How a turn slows down as its session grows."""
    sizes = (10, 100, 500) if options.quick else (10, 100, 1000, 3000)
    found: Json = {}
    async with setting("growth", options) as here:
        session = await here.client.session("long")
        async with here.client.watch(session) as watch:
            messages = 0
            for size in sizes:
                while messages < size - 2:
                    await here.ask(watch, session, f"id={here.new_name()} say 1 tokens")
                    messages += 2
                turns = []
                before = cpu_ms(here.stack)
                for _ in range(10):
                    began = time.monotonic_ns()
                    got = await here.ask(watch, session, f"id={here.new_name()} say 8 tokens")
                    turns.append((got.end_ns - began) / MS)
                    messages += 2
                sent = [line for line in here.model_log() if line["event"] == "request"][-1]["messages"]
                found[str(size)] = {
                    **spread(turns),
                    "messages_sent": sent,
                    "cpu_ms": spent(before, cpu_ms(here.stack), 10),
                }
            here.stack.up.kill("agent")  # type: ignore[union-attr]
            began = time.monotonic_ns()
            got = await here.ask(watch, session, f"id={here.new_name()} say 8 tokens")
            found["after_restart_ms"] = round((got.end_ns - began) / MS, 1)
    base = found[str(sizes[0])]["p50"]
    rows = [
        Row(
            f"turn at {size:,} messages, p50",
            found[str(size)]["p50"],
            "ms",
            2 * base if size == sizes[-1] else None,
            note=f"{found[str(size)]['p50'] / base:.1f}x, {found[str(size)]['messages_sent']} messages sent, "
            f"{found[str(size)]['cpu_ms']['all']:.1f} CPU-ms",
        )
        for size in sizes
    ]
    rows.append(Row("first turn after kill -9 of the agent", found["after_restart_ms"], "ms"))
    return rows, found


async def start(options: Options) -> Result:
    """From `fairlead up` to ready, and to a first answer."""
    found: Json = {"first": {}, "second": {}}
    folder = options.work / "start"
    ready: dict[str, list[float]] = {"first": [], "second": []}
    answered: dict[str, list[float]] = {"first": [], "second": []}
    for number in range(options.scaled(5)):
        shutil.rmtree(folder, ignore_errors=True)
        stack = Stack(folder, Shape(workers=options.workers), fsync_model=False)
        for which in ("first", "second"):
            began = time.monotonic()
            if which == "first":
                await asyncio.to_thread(stack.__enter__)
            else:
                assert stack.up is not None
                await asyncio.to_thread(stack.up.start)
            assert stack.up is not None
            ready[which].append(time.monotonic() - began)
            await asyncio.to_thread(stack.up.ask, f"id=s{number} say 8 tokens")
            answered[which].append(time.monotonic() - began)
            if which == "first":
                await asyncio.to_thread(stack.up.stop)
        await asyncio.to_thread(stack.__exit__, None, None, None)
    rows = []
    for which in ("first", "second"):
        found[which] = {"ready_s": spread(ready[which]), "answered_s": spread(answered[which])}
        rows.append(Row(f"{which} start: ready, p50", found[which]["ready_s"]["p50"], "s"))
        rows.append(Row(f"{which} start: first answer, p50", found[which]["answered_s"]["p50"], "s"))
    return rows, found


async def size(options: Options) -> Result:
    """How much the model is told before the first word: the first request of a new session."""
    async with setting("size", options) as here:
        session = await here.client.session("small")
        async with here.client.watch(session) as watch:
            await here.ask(watch, session, "id=x hello")
        first = next(line for line in here.model_log() if line["event"] == "request")
    return [Row("first request", first["bytes"] / 1000, "KB", 8.0)], {"bytes": first["bytes"]}


async def resume(options: Options) -> Result:
    """How soon a run goes on after kill -9 of the only agent, and of one of two."""
    found: Json = {}
    rows = []
    for workers, label in (("", "the only agent"), ("agent=2", "one of two agents")):
        taken, ends = [], []
        for number in range(options.scaled(5)):
            at = Options(options.work, workers=workers)
            async with setting(f"resume-{number}-{workers or 'one'}", at) as here:
                sample = await _kill_in_mid_tool(here)
                if sample is not None:
                    taken.append(sample[0])
                    ends.append(sample[1])
        found[label] = {"takeover_s": spread(taken), "answer_s": spread(ends)}
        rows += [
            Row(f"kill -9 of {label}: taken over, p50", found[label]["takeover_s"]["p50"], "s", 5.0),
            Row(f"kill -9 of {label}: taken over, max", found[label]["takeover_s"]["max"], "s"),
        ]
    return rows, found


async def _kill_in_mid_tool(here: Setting) -> tuple[float, float] | None:
    """Seconds from the kill to the new owner's first entry, and to the model's next request.

    None if the killed one of several was not the owner.
    """
    up = here.stack.up
    assert up is not None
    session = await here.client.session("crash")
    async with Api(up.base_url, up.token) as api:
        await here.client.prompt(session, "op=C1 steps=2 sleep=1")
        while not await asyncio.to_thread(_under_way, here.stack):
            await asyncio.sleep(0.01)
        name = next(name for name in sorted(up.pids()) if name.startswith("agent"))
        os.kill(up.pids()[name], signal.SIGKILL)
        killed_ms, killed_ns = time.time_ns() / 1e6, time.monotonic_ns()
        deadline = time.monotonic() + 60
        entries: list[Json] = []
        while time.monotonic() < deadline:
            entries = await api.entries(session)
            if any(e["type"] == "run_end" for e in entries):
                break
            await asyncio.sleep(0.05)
        if not any(e["type"] == "epoch" for e in entries):
            return None
        epochs = [e for e in entries if e["ts"] > killed_ms]
        later = [
            line["t"] for line in here.model_log() if line["event"] == "request" and line["t"] > killed_ns
        ]
        return (epochs[0]["ts"] - killed_ms) / 1000, (later[0] - killed_ns) / 1e9


def _under_way(stack: Stack) -> bool:
    return any("ledger.py" in " ".join(_command(process)) for process in stack.ours())


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
