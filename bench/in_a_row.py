"""Prompts that follow one another at once: how even they are, with one agent process and with several."""

import asyncio
import time
from dataclasses import replace

from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options, Setting, setting

AGENTS = (1, 2, 4)
SECONDS = 12.0
LATE_MS = 1_000.0


async def in_a_row(options: Options) -> Result:
    """Back-to-back prompts of one session and of 16, with 1, 2 and 4 agent processes."""
    found: Json = {}
    for agents in AGENTS:
        workers = f"agent={agents}"
        async with setting(f"rows-{agents}", replace(options, workers=workers)) as here:
            for sessions in (1, 16):
                found[f"{agents} agents, {sessions} sessions"] = await _row(
                    here, sessions, SECONDS / 3 if options.quick else SECONDS
                )
    shown: list[Row] = []
    for name, result in found.items():
        turn = result["turn_ms"]
        alone = name.endswith(" 1 sessions")
        shown += [
            Row(f"{name}: turn p50", turn["p50"], "ms"),
            Row(f"{name}: turn p99 by p50", round(turn["p99"] / turn["p50"], 2), "x", 3.0),
            Row(f"{name}: slowest turn", turn["max"], "ms", 100.0 if alone else LATE_MS),
            Row(f"{name}: prompts/s", result["prompts_s"], "/s"),
        ]
    for agents in AGENTS[1:]:
        for sessions in (1, 16):
            one = found[f"1 agents, {sessions} sessions"]["prompts_s"]
            many = found[f"{agents} agents, {sessions} sessions"]["prompts_s"]
            name = f"{sessions} sessions: prompts/s with {agents} agents by those with one"
            shown.append(Row(name, round(many / one, 2), "x", 0.95, at_least=True))
    return shown, found


async def _row(here: Setting, sessions: int, seconds: float) -> Json:
    names = [await here.client.session(here.new_name("row")) for _ in range(sessions)]
    watches = [here.client.watch(name) for name in names]
    for watch in watches:
        await watch.__aenter__()
    turns: list[float] = []

    async def talk(index: int, until: float) -> None:
        while time.monotonic() < until:
            began = time.monotonic_ns()
            got = await here.ask(watches[index], names[index], f"id={here.new_name()} say 8 tokens")
            turns.append((got.end_ns - began) / 1e6)

    await asyncio.gather(*(talk(index, time.monotonic() + 1.0) for index in range(sessions)))
    turns.clear()
    began = time.monotonic()
    await asyncio.gather(*(talk(index, began + seconds) for index in range(sessions)))
    took = time.monotonic() - began
    for watch in watches:
        await watch.__aexit__(None, None, None)
    return {
        "prompts": len(turns),
        "prompts_s": round(len(turns) / took, 1),
        "turn_ms": spread(turns),
    }
