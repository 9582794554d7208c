"""How much goes through, and what it costs in CPU and memory."""

import asyncio
import time

from bench.client import Answered
from bench.latency import Result, where
from bench.machine import cpu_ms, memory_mb, spent
from bench.report import Row, spread
from bench.setting import Json, Options, Setting, setting

TOKENS = 200
RATE = 200


async def throughput(options: Options) -> Result:
    """Prompts and tokens a second at 1, 8, 32 and 128 sessions; an answer has 200 tokens."""
    found: Json = {}
    async with setting("throughput", options) as here:
        for count in (1, 8, 32, 128):
            found[str(count)] = await _at(here, count, 3.0 if options.quick else 8.0)
    rows = []
    best = max(result["tokens_s"] for result in found.values())
    for sessions, result in found.items():
        cost = result["cpu_ms"]
        rows += [
            Row(f"{sessions} sessions: prompts/s", result["prompts_s"], "/s"),
            Row(f"{sessions} sessions: tokens/s to the client", result["tokens_s"], "/s"),
            Row(
                f"{sessions} sessions: CPU per prompt",
                cost["all"],
                "ms",
                None if sessions == "1" else 7.0,
                note=where(cost),
            ),
            Row(f"{sessions} sessions: turn p50", result["turn_ms"]["p50"], "ms"),
        ]
    rows.append(Row("tokens/s to the client, best", best, "/s", 20_000, at_least=True))
    each = (found["128"]["rss_mb"]["all"] - found["8"]["rss_mb"]["all"]) / 120
    rows.append(Row("memory of a further busy session (RSS)", round(each, 3), "MB", 0.2))
    return rows, found


async def _at(here: Setting, sessions: int, seconds: float) -> Json:
    names = [await here.client.session(f"t{sessions}-{number}") for number in range(sessions)]
    watches = [here.client.watch(name) for name in names]
    for watch in watches:
        await watch.__aenter__()
    turns: list[float] = []
    characters = 0

    async def talk(index: int, deadline: float) -> None:
        nonlocal characters
        while time.monotonic() < deadline:
            began = time.monotonic_ns()
            got: Answered = await here.ask(
                watches[index], names[index], f"id={here.new_name()} say {TOKENS} tokens"
            )
            turns.append((got.end_ns - began) / 1e6)
            characters += got.characters

    await asyncio.gather(*(talk(index, 0.0 + time.monotonic() + 0.001) for index in range(sessions)))
    turns.clear()
    characters = 0
    with here.profiler():
        before, began = cpu_ms(here.stack), time.monotonic()
        await asyncio.gather(*(talk(index, began + seconds) for index in range(sessions)))
        took, after = time.monotonic() - began, cpu_ms(here.stack)
    memory = memory_mb(here.stack)
    for watch in watches:
        await watch.__aexit__(None, None, None)
    tokens = characters / len("word ")
    return {
        "prompts": len(turns),
        "prompts_s": round(len(turns) / took, 1),
        "tokens_s": round(tokens / took),
        "tokens_shown": round(tokens / (len(turns) * TOKENS), 3),
        "turn_ms": spread(turns),
        "cpu_ms": spent(before, after, len(turns)),
        "cores_used": round((sum(after.values()) - sum(before.values())) / 1000 / took, 2),
        "rss_mb": memory["rss"],
        "pss_mb": memory["pss"],
    }


async def paced(options: Options) -> Result:
    """Answers that the model paces at 200 tokens a second, in 1 and in 8 sessions; CPU of all processes."""
    found: Json = {}
    async with setting("paced", options) as here:
        for count in (1, 8):
            found[str(count)] = await _paced(here, count, options.scaled(3000))
    rows = []
    for sessions, result in found.items():
        cost = result["cpu_ms"]
        rows += [
            Row(f"{sessions} streams: CPU per token", cost["all"], "ms", 0.5, note=_small(cost)),
            Row(f"{sessions} streams: updates a second to each client", result["updates_s"], "/s"),
            Row(f"{sessions} streams: longest pause between two, p99", result["pause_ms"]["p99"], "ms"),
        ]
    return rows, found


async def _paced(here: Setting, sessions: int, tokens: int) -> Json:
    names = [await here.client.session(f"p{sessions}-{number}") for number in range(sessions)]
    watches = [here.client.watch(name) for name in names]
    for watch in watches:
        await watch.__aenter__()
    for watch, name in zip(watches, names, strict=True):
        await here.ask(watch, name, f"id={here.new_name()} say 8 tokens")
    texts = [f"id={here.new_name()} say {tokens} tokens rate={RATE}" for _ in names]
    with here.profiler():
        before, began = cpu_ms(here.stack), time.monotonic()
        for name, text in zip(names, texts, strict=True):
            await here.client.prompt(name, text)
        answers = [await watch.answer(60.0 + 2 * tokens / RATE) for watch in watches]
        took, after = time.monotonic() - began, cpu_ms(here.stack)
    for watch in watches:
        await watch.__aexit__(None, None, None)
    shown = sum(answer.characters for answer in answers) / len("word ")
    assert shown == tokens * sessions, f"{shown} of {tokens * sessions} tokens were shown"
    pauses = [pause for answer in answers for pause in answer.pauses_ms()]
    return {
        "cpu_ms": spent(before, after, tokens * sessions),
        "updates_s": round((len(pauses) + sessions) / sessions / took, 1),
        "pause_ms": spread(pauses),
        "seconds": round(took, 1),
    }


def _small(cost: dict[str, float]) -> str:
    return "  ".join(
        f"{name} {value:.3f}" for name, value in cost.items() if name != "all" and value >= 0.001
    )


async def memory(options: Options) -> Result:
    """All services when idle, after a first prompt, and what a further quiet session adds."""
    async with setting("memory", options) as here:
        await asyncio.sleep(5)
        idle = memory_mb(here.stack)
        await _visit(here, [f"m{number}" for number in range(20)])
        few = memory_mb(here.stack)
        more = options.scaled(500)
        await _visit(here, [f"n{number}" for number in range(more)])
        many = memory_mb(here.stack)
    each = (many["pss"]["all"] - few["pss"]["all"]) / more
    rows = [
        Row("idle, all processes (PSS)", idle["pss"]["all"], "MB", 200.0, note=where(idle["pss"])),
        Row("idle, all processes (RSS)", idle["rss"]["all"], "MB"),
        Row("after 20 prompts (PSS)", few["pss"]["all"], "MB"),
        Row("a further quiet session (PSS)", round(each, 3), "MB", 0.2),
    ]
    return rows, {"idle": idle, "after_20": few, f"after_{20 + more}": many}


async def parked(options: Options) -> Result:
    """Thousands of sessions that wait for nothing: they should be on disk and nowhere else."""
    count = options.scaled(options.count)
    async with setting("parked", options) as here:
        await _visit(here, [f"m{number}" for number in range(50)])
        before = memory_mb(here.stack)
        began = time.monotonic()
        await _visit(here, [f"p{number}" for number in range(count)], at_once=32)
        took = time.monotonic() - began
        after = memory_mb(here.stack)
        await asyncio.sleep(10)
        settled = memory_mb(here.stack)
        spent_before = cpu_ms(here.stack)
        await asyncio.sleep(10)
        idle_cpu = spent(spent_before, cpu_ms(here.stack), 10)
        disk = sum(file.stat().st_size for file in here.stack.folder.rglob("*") if file.is_file())
        watch_began = time.monotonic_ns()
        async with here.client.watch("p1") as watch:
            got = await here.ask(watch, "p1", "id=again say 8 tokens")
        again = (got.end_ns - watch_began) / 1e6
    growth_mb = settled["pss"]["all"] - before["pss"]["all"]
    rows = [
        Row(f"memory added by {count:,} parked sessions (PSS)", round(growth_mb, 1), "MB"),
        Row("  each", round(1000 * growth_mb / count, 2), "KB", note=_growth(before["pss"], settled["pss"])),
        Row("CPU of the idle system", idle_cpu["all"], "ms/s", note=where(idle_cpu)),
        Row("disk of each session", round(disk / count / 1000, 1), "KB"),
        Row("turn in one of them, with opening its events", round(again, 1), "ms"),
        Row("made at", round(count / took, 1), "/s"),
    ]
    return rows, {"before": before, "after": after, "settled": settled, "idle_cpu_ms_s": idle_cpu}


def _growth(before: dict[str, float], after: dict[str, float]) -> str:
    return where({name: after[name] - before.get(name, 0.0) for name in after if name != "all"}) + " MB"


async def _visit(here: Setting, names: list[str], at_once: int = 8) -> None:
    """One short prompt in each of these new sessions."""
    left = iter(names)

    async def visitor() -> None:
        for name in left:
            await here.client.session(name)
            async with here.client.watch(name) as watch:
                await here.ask(watch, name, f"id={name} say 8 tokens")

    await asyncio.gather(*(visitor() for _ in range(at_once)))
