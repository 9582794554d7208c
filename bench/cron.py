"""The scheduler by itself, with as many jobs as it may have: its start, its memory, and how late it fires.

A scheduler and a nats-server as processes of their own; no agents, no model. Intervals, cron expressions (of
a few thousand kinds) and one-shot jobs of the next years, a third each; beside them as many intervals of ten
seconds as it takes for 200 firings a second.
"""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import psutil

from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options
from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.errors import BusUnavailableError, NotFoundError
from fairlead_common.protocol import subjects as s
from fairlead_common.received import Delivery
from tests.support.nats_server import NatsServer
from tests.support.scheduler_process import SchedulerProcess

JOBS = 100_000
PER_SECOND = 200
EVERY_S = 10
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu")


def _document(rng: random.Random, job: str, now_ms: int) -> Json:
    kind = rng.randrange(3)
    schedule: Json
    if kind == 0:
        schedule = {"kind": "every", "everyMs": rng.randrange(3600, 86_400) * 1000}
    elif kind == 1:
        expr = f"{rng.randrange(60)} {rng.randrange(24)} * * {rng.choice(['*', '1-5', '0'])}"
        schedule = {"kind": "cron", "expr": expr, "tz": rng.choice(ZONES)}
    else:
        schedule = {"kind": "at", "atMs": now_ms + rng.randrange(3_600_000, 10**11)}
    return _job(job, schedule, now_ms)


def _job(job: str, schedule: Json, now_ms: int) -> Json:
    return {
        "id": job,
        "name": f"job {job}",
        "schedule": schedule,
        "payload": {"kind": "systemEvent", "text": f"It is time for {job}."},
        "sessionTarget": "main",
        "session": f"s{hash(job) % 100}",
        "enabled": True,
        "wakeMode": "next-heartbeat",
        "createdAtMs": now_ms,
        "updatedAtMs": now_ms,
        "sinceMs": now_ms,
    }


async def _fill(bus: Bus, rng: random.Random, count: int) -> None:
    """Write the jobs as the scheduler itself would."""
    now_ms = round(time.time() * 1000)
    busy = [f"busy{n}" for n in range(PER_SECOND * EVERY_S)]
    documents = [_document(rng, f"idle{n}", now_ms) for n in range(count - len(busy))]
    for job in busy:
        every = {
            "kind": "every",
            "everyMs": EVERY_S * 1000,
            "anchorMs": now_ms + rng.randrange(EVERY_S * 1000),
        }
        documents.append(_job(job, every, now_ms))
    waiting = iter(documents)

    async def write() -> None:
        for document in waiting:
            data = msgspec.json.encode(document)
            await bus.publish(s.kv(s.BUCKET_JOBS, document["id"]), data, timeout_s=30)

    await asyncio.gather(*(write() for _ in range(64)))


@asynccontextmanager
async def _server(options: Options) -> AsyncIterator[Bus]:
    shutil.rmtree(options.work, ignore_errors=True)
    nats = NatsServer(options.work / "nats").start()
    try:
        bus = await Bus.connect(BusSettings(url=nats.url), name="bench")
        await provision(bus)
        yield bus
        await bus.close()
    finally:
        nats.kill()


async def _status(bus: Bus) -> Json:
    async with asyncio.timeout(60):
        while True:
            try:
                reply = await bus.request(s.api("cron.status"), b"", timeout_s=1)
                return dict(msgspec.json.decode(reply.data))
            except (NotFoundError, BusUnavailableError):
                await asyncio.sleep(0.01)


async def _logged(scheduler: SchedulerProcess, event: str) -> Json:
    """The line of its log that says so, as soon as it is there."""
    async with asyncio.timeout(120):
        while True:
            for line in scheduler.log().splitlines():
                if (found := msgspec.json.decode(line))["event"] == event:
                    return dict(found)
            await asyncio.sleep(0.1)


async def cron(options: Options) -> Result:
    """The scheduler with 100,000 jobs: start, memory, and lateness at 200 firings a second."""
    count = options.scaled(JOBS)
    late: list[float] = []
    effects: dict[str, int] = {}

    def note(delivery: Delivery) -> None:
        key = delivery.subject.rpartition(".")[2]
        effects[key] = effects.get(key, 0) + 1
        late.append(time.time() * 1000 - int(key.rpartition("-")[2]))

    async with _server(options) as bus:
        await _fill(bus, random.Random(1), count)
        first = SchedulerProcess(bus.settings.url, options.work, "first", {}).start()
        await _logged(first, "snapshot_written")
        first.stop()
        scheduler = SchedulerProcess(bus.settings.url, options.work, "scheduler", {})
        began = time.monotonic()
        scheduler.start()
        try:
            status: Json = {}
            while status.get("jobs") != count:
                status = await _status(bus)
            ready_s = time.monotonic() - began
            await asyncio.sleep(5)  # what was due while it started is not what is measured
            process = psutil.Process(scheduler.pid)
            heard = await bus.subscribe("fairlead.live.*.in.notice.*", note)
            before = process.cpu_times()
            seconds = options.scaled(30)
            await asyncio.sleep(seconds)
            after = process.cpu_times()
            await heard.unsubscribe()
            rss_mb = process.memory_info().rss / 2**20
        finally:
            scheduler.stop()
    loaded = [(await _logged(each, "jobs_loaded"))["duration_ms"] / 1000 for each in (first, scheduler)]
    late_ms = spread(late)
    cpu_s = after.user + after.system - before.user - before.system
    rows = [
        Row(f"{count:,} jobs: loaded", loaded[1], "s", 2.0),
        Row(f"{count:,} jobs: loaded without a snapshot", loaded[0], "s"),
        Row(f"{count:,} jobs: process started to answering", ready_s, "s"),
        Row(f"{count:,} jobs: memory", rss_mb, "MB", 200.0),
        Row("firings a second", len(late) / seconds, "/s", PER_SECOND * 0.95, at_least=True),
        Row("due to mail in the session, p50", late_ms["p50"], "ms"),
        Row("due to mail in the session, p99", late_ms["p99"], "ms", 250.0),
        Row("fired twice", sum(n > 1 for n in effects.values()), "", 0),
        Row("CPU per firing", cpu_s * 1000 / max(1, len(late)), "ms"),
    ]
    return rows, {"late_ms": late_ms, "loaded": loaded, "status": status}
