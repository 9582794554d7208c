"""The bare floor: what this machine takes today for the steps that nothing can go without."""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
from structlog.testing import capture_logs

from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options
from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.protocol import subjects
from tests.support.nats_server import NatsServer
from tests.support.scripted_model import MODEL, ModelProcess

TOKENS = 200


async def floor(options: Options) -> Result:
    """A program started, the scripted model asked without Fairlead, a message stored: nothing around it."""
    count = options.scaled(200)
    folder = options.work / "floor"
    folder.mkdir(parents=True, exist_ok=True)
    with capture_logs(), ModelProcess(folder / "model.jsonl", fsync=False) as model:
        found: Json = {
            "start": await _timed(_start_program, count),
            "store": await _stored(folder, count),
            **await asked(model.url, count),
        }
    rows = [
        Row("a program started and waited for (`true`), p50", found["start"]["p50"], "ms"),
        Row("the model asked, to its first word, p50", found["first"]["p50"], "ms"),
        Row("CPU of a bare client, 200 tokens", found["cpu_ms"], "ms"),
        Row("a message stored (synced) and acknowledged, p50", found["store"]["p50"], "ms"),
    ]
    return rows, found


async def asked(url: str, count: int) -> Json:
    """The model asked by a bare HTTP client: time to the first word, and CPU of an answer of 200 tokens."""
    headers = {"Authorization": "Bearer scripted"}
    firsts: list[float] = []
    async with aiohttp.ClientSession(headers=headers, read_bufsize=256 * 1024) as http:

        async def ask(tokens: int) -> None:
            body = {
                "model": MODEL,
                "stream": True,
                "messages": [{"role": "user", "content": f"say {tokens} tokens"}],
            }
            began = time.monotonic_ns()
            async with http.post(f"{url}/chat/completions", json=body) as response:
                assert response.status == 200, await response.text()
                await response.content.readany()
                firsts.append((time.monotonic_ns() - began) / 1e6)
                await response.read()

        for _ in range(count):
            await ask(8)
        found = spread(firsts)
        before = time.process_time()
        for _ in range(count):
            await ask(TOKENS)
        cpu_ms = (time.process_time() - before) * 1000 / count
    return {"first": found, "cpu_ms": round(cpu_ms, 2)}


async def _timed(action: Callable[[], Awaitable[None]], count: int) -> dict[str, float]:
    taken = []
    for _ in range(count):
        began = time.monotonic_ns()
        await action()
        taken.append((time.monotonic_ns() - began) / 1e6)
    return spread(taken)


async def _start_program() -> None:
    subprocess.run(["true"], check=True)


async def _stored(folder: Path, count: int) -> dict[str, float]:
    server = NatsServer(folder / "nats").start()
    try:
        bus = await Bus.connect(BusSettings(url=server.url), name="bench")
        try:
            await provision(bus)
            names = iter(range(count))

            async def store() -> None:
                await bus.create(
                    subjects.SESSIONS, subjects.mail("floor", "prompt", f"k{next(names)}"), b"{}"
                )

            return await _timed(store, count)
        finally:
            await bus.close()
    finally:
        await asyncio.to_thread(server.stop)
