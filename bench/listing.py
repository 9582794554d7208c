"""How far the list of sessions is behind, and how soon it is whole after everything was killed."""

import asyncio
import contextlib
import os
import signal
import time

from bench.client import Client
from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options, Setting, setting

RUNS_A_MINUTE = 2_000
SECONDS = 30.0
SESSIONS = 2_500
AT_ONCE = 12
LOOK_S = 0.2
LAG_S = 2.0


async def listing(options: Options) -> Result:
    """New sessions at 200 and 2,000 runs a minute; then 2,500 at once, and kill -9 of all processes."""
    seconds = SECONDS / 3 if options.quick else SECONDS
    async with setting("listing", options) as here:
        slow = await _at(here, RUNS_A_MINUTE / 10, seconds, "slow")
        fast = await _at(here, RUNS_A_MINUTE, seconds, "fast")
        killed = await _kill(here, options.scaled(SESSIONS))
    ratio = fast["lag_ms"]["p50"] / max(slow["lag_ms"]["p50"], 1.0)
    rows = [
        Row("runs a minute", fast["runs_a_minute"], "/min", 0.9 * RUNS_A_MINUTE, at_least=True),
        Row("  the list is behind, p50", fast["lag_ms"]["p50"], "ms"),
        Row("  the list is behind, most", fast["lag_ms"]["max"], "ms", 1000 * LAG_S),
        Row("  p50 beside that at a tenth of the rate", round(ratio, 2), "x"),
        Row(f"{killed['sessions']:,} sessions: from the last prompt until all are listed as done",
            killed["settled_s"], "s"),
        Row("  after kill -9 of all: listed from readiness on", killed["listed_s"], "s", 5.0),
        Row("  beside the start itself", round(killed["listed_s"] / killed["ready_s"], 2), "x"),
    ]  # fmt: skip
    return rows, {"slow": slow, "fast": fast, "killed": killed}


async def _at(here: Setting, runs_a_minute: float, seconds: float, name: str) -> Json:
    """Start runs at this rate and note when each is listed as done; behind by so many milliseconds."""
    count = round(runs_a_minute * seconds / 60)
    lags: dict[str, float] = {}
    began = time.monotonic()

    async def look() -> None:
        while len(lags) < count:
            await asyncio.sleep(LOOK_S)
            for session in await _listed(here.client, 400):
                if session["id"].startswith(f"{name}-") and session["last_outcome"] == "completed":
                    lags.setdefault(session["id"], time.time() * 1000 - session["updated_at"])

    async with asyncio.timeout(seconds + 300), asyncio.TaskGroup() as tasks:
        tasks.create_task(look())
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number * 60 / runs_a_minute - time.monotonic()))
            tasks.create_task(_begin(here.client, f"{name}-{number}"))
        posted = time.monotonic() - began
    return {
        "runs": count,
        "runs_a_minute": round(60 * count / posted),
        "lag_ms": {**spread(list(lags.values())), "max": round(max(lags.values()), 1)},
        "look_ms": 1000 * LOOK_S,
    }


async def _kill(here: Setting, count: int) -> Json:
    """Many new sessions as fast as they are taken; everything is killed once their runs have ended."""
    names = iter([f"kill-{number}" for number in range(count)])

    async def post() -> None:
        for name in names:
            await _begin(here.client, name)

    await asyncio.gather(*(post() for _ in range(AT_ONCE)))
    posted = time.monotonic()
    await _all_done(here.client, count)
    settled = time.monotonic() - posted
    up = here.stack.up
    assert up is not None
    assert up.process is not None
    victims = [up.process.pid, *up.pids().values()]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(up.process.wait, 10)
    began = time.monotonic()
    await asyncio.to_thread(up.start, 120)
    ready = time.monotonic() - began
    async with Client(up.base_url, up.token) as client:
        began = time.monotonic()
        await _all_done(client, count)
    return {
        "sessions": count,
        "settled_s": round(settled, 2),
        "ready_s": round(ready, 2),
        "listed_s": round(time.monotonic() - began, 2),
    }


async def _begin(client: Client, name: str) -> None:
    await client.session(name)
    await client.prompt(name, f"op={name}")


async def _all_done(client: Client, count: int) -> None:
    """Until the list shows so many of the sessions to be killed as done."""
    async with asyncio.timeout(600):
        while True:
            found = [s for s in await _listed(client, 10_000) if s["id"].startswith("kill-")]
            if sum(session["last_outcome"] == "completed" for session in found) == count:
                return
            await asyncio.sleep(LOOK_S)


async def _listed(client: Client, count: int) -> list[Json]:
    """The newest sessions of the list."""
    found: list[Json] = []
    cursor = ""
    while len(found) < count:
        page = await client.request(
            "GET", f"/api/sessions?limit={min(1000, count - len(found))}{cursor and f'&before={cursor}'}"
        )
        found += page["sessions"]
        cursor = page.get("next") or ""
        if not cursor:
            break
    return found
