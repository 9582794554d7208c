"""100,000 sessions that rest, beside an installation of 100 in the same run."""

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import msgspec
import psutil

from bench.latency import Result
from bench.machine import cpu_ms, memory_mb, spent
from bench.many_sessions import DAYS, NEEDLE, fill, name_of, start_consumers_at_end
from bench.report import Row, spread
from bench.setting import Json, Options, Setting, setting
from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.errors import BusUnavailableError, NotFoundError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.usage import POSITION, UsagePosition
from fairlead_node.nats_server.memory_limit import memory_limit
from fairlead_node.supervisor.child import environment_of_server
from tests.support.nats_server import NatsServer

FEW, MANY = 100, 100_000
IDLE_S = 60.0
REST_S = 300.0  # nats-server puts away what it read after two minutes, and collects every two
TODAY_KB = 4.4  # of all processes together for a session, before rows were packed, a minute after the start
RESTARTED = ("gateway", "agent", "scheduler")
GIVEN = dict(os.environ)


async def sessions(options: Options) -> Result:
    """100,000 sessions that rest: lists, search, starts, idle cost, new and old sessions, beside 100."""
    many = options.scaled(MANY)
    few = await _installation(options, FEW)
    found = await _installation(options, many)
    holders = {when: _each_kb(found[when], few[when], many - FEW) for when in ("started_mb", "idle_mb")}
    each = f"memory of each of {many:,} sessions at rest (PSS of all)"
    rows = [
        _memory_row(each, holders["idle_mb"], TODAY_KB / 2),
        _memory_row("  a minute after the start", holders["started_mb"], TODAY_KB / 2),
        Row("idle CPU of all processes", found["idle_cpu"]["all"], "ms/s",
            note=f"{few['idle_cpu']['all']} with {FEW}"),
        Row("logs read for runs and usage by a first agent", found["derived_s"], "s"),
        Row("`fairlead up` until ready", found["ready_s"], "s", note=f"{few['ready_s']} with {FEW}"),
        *(Row(f"  {name} alone, kill -9 until it answers", found["restart_s"][name], "s",
              note=f"{few['restart_s'][name]} with {FEW}") for name in RESTARTED),
        *(_beside(name, found["ms"][name], few["ms"][name]) for name in found["ms"]),
    ]  # fmt: skip
    return rows, {"few": few, "many": found, "each_kb": holders}


def _each_kb(many: Json, few: Json, sessions: int) -> dict[str, float]:
    return {name: round(1000 * (mb - few.get(name, 0.0)) / sessions, 2) for name, mb in many.items()}


def _memory_row(name: str, holders: dict[str, float], target: float) -> Row:
    note = " ".join(f"{each} {kb}" for each, kb in holders.items() if each != "all" and kb >= 0.02)
    return Row(name, holders["all"], "KB", target, note=note)


def _beside(name: str, many: Json, few: Json) -> Row:
    ratio = many["p50"] / max(few["p50"], 0.001)
    note = f"p99 {many['p99']:.1f}; {ratio:.1f}x of {few['p50']:.1f} (p99 {few['p99']:.1f})"
    return Row(f"{name}, p50", many["p50"], "ms", note=note)


async def _installation(options: Options, count: int) -> Json:
    """Fill one, start Fairlead on it, and measure."""
    folder = options.work / f"nats-{count}"
    await _filled(folder, count)
    server = NatsServer(folder)
    _start(server)
    try:
        bus = await Bus.connect(BusSettings(url=server.url), name="bench")
        async with setting(f"sessions-{count}", replace(options, nats=server.url)) as here:
            derived_s = await _derived(bus, count)
        # Once more, as it is every day: what is derived is there, and nats-server has just read its store.
        server.stop()
        _start(server)
        async with setting(f"sessions-{count}", replace(options, nats=server.url)) as here:
            assert here.stack.up is not None
            await asyncio.to_thread(here.stack.up.stop)
            began = time.monotonic()
            await asyncio.to_thread(here.stack.up.start, 300)
            ready_s = round(time.monotonic() - began, 2)
            await _listed(here)
            found = await _idle(here, server)
            found["ms"] = await _requests(here, options, count)
            found["restart_s"] = {name: await _restart(here, bus, name) for name in RESTARTED}
        await bus.close()
    finally:
        server.kill()
    return {"sessions": count, "derived_s": derived_s, "ready_s": ready_s, **found}


def _start(server: NatsServer) -> None:
    """With the limits of memory that `fairlead up` gives its own server."""
    os.environ |= environment_of_server(GIVEN, memory_limit(server.folder / "js"))
    server.start()


async def _filled(folder: Path, count: int) -> None:
    server = NatsServer(folder, synced=False).start()
    try:
        bus = await Bus.connect(BusSettings(url=server.url), name="bench")
        await provision(bus)
        await fill(bus, count)
        await start_consumers_at_end(bus)
        await bus.close()
    finally:
        server.stop()


async def _derived(bus: Bus, count: int) -> float:
    """Until the list of runs and the usage are made of the logs."""
    began = time.monotonic()
    end = await bus.last_sequence(s.SESSIONS)
    async with asyncio.timeout(600):
        while await _runs(bus) < count or await _counted(bus) < end - 1:
            await asyncio.sleep(0.1)
    return round(time.monotonic() - began, 1)


async def _runs(bus: Bus) -> int:
    info = await bus.api(f"STREAM.INFO.{s.RUN_HISTORY}")
    state = info["state"]
    return int(state["messages"]) if isinstance(state, dict) else 0


async def _counted(bus: Bus) -> int:
    """Up to which record the usage is made."""
    record = await bus.last(s.kv_stream(s.BUCKET_USAGE), s.kv(s.BUCKET_USAGE, POSITION))
    return 0 if record is None else msgspec.json.decode(record.data, type=UsagePosition).seq


async def _idle(here: Setting, server: NatsServer) -> Json:
    began = time.monotonic()
    seconds = IDLE_S / 6 if here.options.quick else IDLE_S
    await asyncio.sleep(5)
    before = _cpu(here, server)
    await asyncio.sleep(seconds)
    used = spent(before, _cpu(here, server), 1)
    cpu = {name: round(value / seconds, 2) for name, value in used.items()}
    started_mb = _memory(here, server)
    await asyncio.sleep(began + REST_S - time.monotonic())
    return {"idle_cpu": cpu, "started_mb": started_mb, "idle_mb": _memory(here, server)}


def _cpu(here: Setting, server: NatsServer) -> dict[str, float]:
    return {**cpu_ms(here.stack), "nats": _cpu_of(server)}


def _cpu_of(server: NatsServer) -> float:
    assert server.process is not None
    times = psutil.Process(server.process.pid).cpu_times()
    return 1000 * float(times.user + times.system)


def _memory(here: Setting, server: NatsServer) -> dict[str, float]:
    assert server.process is not None
    found = memory_mb(here.stack)["pss"]
    nats = round(psutil.Process(server.process.pid).memory_full_info().pss / 1e6, 1)
    own = {name: mb for name, mb in found.items() if name not in {"all", "nats", "runner"}}
    return {"all": round(sum(own.values()) + nats, 1), **own, "nats": nats}


async def _listed(here: Setting) -> None:
    """Until the gateway has read the list."""
    async with asyncio.timeout(120):
        while not (await here.client.request("GET", "/api/sessions?limit=1"))["sessions"]:
            await asyncio.sleep(0.05)


async def _requests(here: Setting, options: Options, count: int) -> Json:
    repeats = options.scaled(50)
    deep = f"{int(time.time() * 1000) - DAYS * 86_400_000 // 2}.0"
    lists = {
        "list, first 100": "limit=100",
        "list, 100 from the middle": f"limit=100&before={deep}",
        "list, archived": "limit=100&archived=true",
        "list, of API calls": "limit=100&source=api",
        "search, every thousandth": f"limit=100&q={NEEDLE}",
        "search without a hit": f"limit=100&q={quote('not in any of them')}",
    }
    found = {name: await _timed(here, f"/api/sessions?{query}", repeats) for name, query in lists.items()}
    found["runs, newest 100"] = await _timed(here, "/api/runs?limit=100", repeats)
    found["usage of all days"] = await _timed(here, "/api/usage", repeats)
    fresh, old = [], []
    for number in range(options.scaled(20)):
        began = time.monotonic_ns()
        name = await here.client.session(here.new_name("new"))
        async with here.client.watch(name) as watch:
            await here.ask(watch, name, "say 1 tokens")
        fresh.append((time.monotonic_ns() - began) / 1e6)
        resting = name_of(number * (count // 21))
        began = time.monotonic_ns()
        await here.client.request("GET", f"/api/sessions/{resting}")
        async with here.client.watch(resting) as watch:
            await here.ask(watch, resting, "say 1 tokens")
        old.append((time.monotonic_ns() - began) / 1e6)
    found["new session, created and answered"] = spread(fresh)
    found["old session, opened and answered"] = spread(old)
    return found


async def _timed(here: Setting, path: str, repeats: int) -> Json:
    taken = []
    for _ in range(repeats):
        began = time.monotonic_ns()
        await here.client.request("GET", path)
        taken.append((time.monotonic_ns() - began) / 1e6)
    return spread(taken)


async def _restart(here: Setting, bus: Bus, name: str) -> float:
    """Seconds from kill -9 of a service until it answers for what it has read."""
    up = here.stack.up
    assert up is not None
    began = time.monotonic()
    up.kill(name)
    await asyncio.to_thread(up.wait_restarted, name)
    if name == "gateway":
        await asyncio.to_thread(up.wait_ready, 120)
        async with asyncio.timeout(120):
            while not up.call("GET", "/api/sessions?limit=1")[1]["sessions"]:
                await asyncio.sleep(0.02)
    elif name == "scheduler":
        async with asyncio.timeout(60):
            while not await _answers(bus, s.api("cron.status")):
                await asyncio.sleep(0.02)
    else:
        await asyncio.to_thread(up.ask, "say 1 tokens")
    return round(time.monotonic() - began, 2)


async def _answers(bus: Bus, subject: str) -> bool:
    try:
        await bus.request(subject, b"", timeout_s=1)
    except (NotFoundError, BusUnavailableError):
        return False
    return True
