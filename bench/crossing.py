"""What a turn costs whose request no longer fits, because a summary has to take the place of older messages.

The summary is written while the session is idle, so such a turn should cost what every other turn costs. The
model takes `SUMMARY_S` for a summary: a turn that had to wait for one would show it.
"""

import asyncio
import time
from dataclasses import replace
from typing import Final

from bench.client import Watch
from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options, Setting, setting

MS = 1_000_000
WINDOW: Final = 24_000
SUMMARY_S: Final = 0.3
IDLE_S: Final = 1.0  # between two turns: a person reads
CROSSINGS: Final = 100
MORE_MS: Final = 50.0
SESSIONS: Final = 4
_FILLER: Final = "word " * 1600


async def crossing(options: Options) -> Result:
    """A turn that crosses the threshold of compaction beside those that do not, in the same sessions."""
    sets = (*options.sets, f"agents.main.context_window={WINDOW}")
    wanted = options.scaled(CROSSINGS)
    async with setting("crossing", replace(options, sets=sets)) as here:
        turns: list[tuple[bool, float]] = []
        talks = [_talk(here, f"crossing{number}", turns, wanted) for number in range(SESSIONS)]
        await asyncio.gather(*talks)
    across = [ms for crossed, ms in turns if crossed][:wanted]
    others = [ms for crossed, ms in turns if not crossed]
    usual = spread(others)["p50"]
    dear = sum(ms > usual + MORE_MS for ms in across)
    found: Json = {
        "across": spread(across),
        "others": spread(others),
        "over_50_ms_more": dear,
        "others_over_50_ms_more": sum(ms > usual + MORE_MS for ms in others),
        "summary_ms": SUMMARY_S * 1000,
    }
    share = round(100 * (1 - dear / len(across)), 1)
    usual_share = round(100 * (1 - found["others_over_50_ms_more"] / len(others)), 1)
    rows = [
        Row("first request of a turn that crosses the threshold, p50", found["across"]["p50"], "ms"),
        Row("  of the other turns, p50", usual, "ms"),
        Row("  ratio", round(found["across"]["p50"] / usual, 2), "x"),
        Row("  p95", found["across"].get("p95", found["across"]["p90"]), "ms"),
        Row("turns that cross at 50 ms more at most", share, "%", 95.0, at_least=True),
        Row("  of the other turns", usual_share, "%"),
    ]
    return rows, found


async def _talk(here: Setting, session: str, turns: list[tuple[bool, float]], wanted: int) -> None:
    """Turns of one session, until enough of them all have crossed the threshold."""
    await here.client.session(session)
    said = 0
    async with here.client.watch(session) as watch:
        while sum(crossed for crossed, _ in turns) < wanted:
            ms, messages = await _turn(here, watch, session)
            turns.append((messages <= said, ms))  # an earlier part is a summary now
            said = messages
            await asyncio.sleep(IDLE_S)


async def _turn(here: Setting, watch: Watch, session: str) -> tuple[float, int]:
    """Milliseconds from the POST to the model's receipt, and how many messages it was shown."""
    name = here.new_name()
    began = time.monotonic_ns()
    await here.ask(
        watch, session, f'id={name} say 8 tokens summary="so far" summarising={SUMMARY_S} {_FILLER}'
    )
    request = next(
        line
        for line in reversed(here.model_log())
        if line["event"] == "request" and line["seen"][-1:] == [name]
    )
    return (request["t"] - began) / MS, request["messages"]
