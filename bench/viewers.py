"""Live viewers of one gateway: how late events arrive, and what clients that read nothing do to the others.

A gateway and a nats-server as processes of their own. Sessions are written as an agent would, each event with
the time at which it was made; 300 viewers read server-sent events, 200 use the WebSocket API. Then beside
1,000 viewers that asked for a long log and read nothing, and beside 1,000 that asked in all other ways.
"""

import asyncio
import json
import re
import resource
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from websockets.asyncio.client import ClientConnection, connect

from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options
from fairlead_common.protocol.events import Delta, MessageUpdate
from tests.integration.gateway_fixture import TOKEN, FakeAgent
from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.slow_readers import Ask, get, reads_nothing

SESSIONS = 10
STREAMS = 300  # of server-sent events
SOCKETS = 200
PER_SECOND = 3000  # events delivered, over all viewers
SECONDS = 20.0
LONG_LOG = 200  # replies of 50 KB
CUT_OFF_WITHIN_S = 45.0
SETTLED_S = 8.0  # after the last one is cut off; what it had is given back after moments
EVENTS: Final[dict[Ask, int]] = {"events": 1000}  # how many ask so, and read nothing
OTHERS: Final[dict[Ask, int]] = {"websocket": 550, "response": 350, "entries": 50, "flood": 50}

_MADE_AT = re.compile(rb'"text":"(\d+)"')


class Crowd(NamedTuple):
    """What clients that read nothing cost.

    Fields:
        memory_mb: of the gateway before them, at most, and after they were cut off.
        left: how many of their connections.
    """

    readers: int
    beside: Json
    memory_mb: tuple[float, float, float]
    left: int

    def rows(self, name: str, most_kb: float, alone_ms: float) -> list[Row]:
        before, most, after = self.memory_mb
        each_kb = round((most - before) * 1000 / self.readers, 1)
        late_ms = self.beside["late_ms"]["p99"]
        return [
            Row(f"beside {self.readers} {name}: p99", late_ms, "ms", 100.0),
            Row("the same, compared with no one beside", round(late_ms / alone_ms, 2), "x"),
            Row(f"memory: each of {self.readers} {name}", each_kb, "KB", most_kb),
            Row(f"memory: more after these {name}", round(after - before, 1), "MB", 50.0),
            Row(f"still connected, of these {name}", self.left, "", 0.0),
        ]


async def viewers(options: Options) -> Result:
    """300 viewers and 200 WebSockets at 3,000 events a second; then clients that read nothing beside them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 8192), hard), hard))
    seconds = SECONDS / 4 if options.quick else SECONDS
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(gateway_process(options.work / "viewers"))
        agents = [await _session(gateway) for _ in range(SESSIONS)]
        empty = gateway.memory_mb()
        late: list[float] = []
        for number in range(STREAMS):
            await stack.enter_async_context(_stream(gateway, agents[number % SESSIONS].session, late))
        for number in range(SOCKETS):
            await stack.enter_async_context(_socket(gateway, agents[number % SESSIONS].session, late))
        await asyncio.sleep(1.0)
        alone = await _measure(gateway, agents, late, seconds)
        watched = gateway.memory_mb()
        names = await _long_log(gateway)
        crowds = [
            await _crowd(
                gateway, agents, late, seconds, names, {ask: options.scaled(n) for ask, n in all_.items()}
            )
            for all_ in (EVENTS, OTHERS)
        ]
    shown = [
        Row("events delivered", alone["delivered_s"], "/s", PER_SECOND * 0.95, at_least=True),
        Row("an event is late, p50", alone["late_ms"]["p50"], "ms"),
        Row("an event is late, p99", alone["late_ms"]["p99"], "ms", 100.0),
        Row("CPU of the gateway", alone["cpu"], "cores"),
        Row("memory: gateway alone", empty, "MB"),
        Row("memory: each of 500 viewers", round((watched - empty) * 1000 / (STREAMS + SOCKETS), 1), "KB"),
        *crowds[0].rows("that read no events", 100.0, alone["late_ms"]["p99"]),
        *crowds[1].rows("that read no answers", 400.0, alone["late_ms"]["p99"]),
    ]
    raw = [crowd._asdict() for crowd in crowds]
    return shown, {"alone": alone, "crowds": raw, "memory_mb": [empty, watched]}


async def _crowd(
    gateway: GatewayProcess,
    agents: list[FakeAgent],
    late: list[float],
    seconds: float,
    names: dict[str, str],
    readers: dict[Ask, int],
) -> Crowd:
    """Let so many ask for the long log, or the response, and measure beside them until they are cut off."""
    before = most = gateway.memory_mb()

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, await asyncio.to_thread(gateway.memory_mb))
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    async with AsyncExitStack() as stack:
        measuring = asyncio.create_task(_measure(gateway, agents, late, seconds))  # while they come, too
        for ask, count in readers.items():
            for _ in range(count):
                name = names["response" if ask == "response" else "session"]
                await stack.enter_async_context(reads_nothing(gateway.port, ask, name))
        beside = await measuring
        left = await _cut_off(gateway)
    await asyncio.sleep(SETTLED_S)
    watching.cancel()
    return Crowd(sum(readers.values()), beside, (before, most, gateway.memory_mb()), left)


async def _long_log(gateway: GatewayProcess) -> dict[str, str]:
    """A response of ten megabytes, and its session."""
    made = await gateway.http.post(
        "/v1/responses", json={"model": "main", "input": "hello", "background": True}
    )
    agent = FakeAgent(gateway.bus, made.headers["x-fairlead-session"])
    seq, _ = await agent.mail()
    await agent.begin([seq])
    for number in range(LONG_LOG):
        await agent.reply(f"long{number}", "x" * 50_000)
    return {"response": str(made.json()["id"]), "session": agent.session}


async def _session(gateway: GatewayProcess) -> FakeAgent:
    """A session in the middle of a reply."""
    made = await gateway.http.post("/api/sessions", json={})
    agent = FakeAgent(gateway.bus, made.json()["id"])
    await gateway.http.post(f"/api/sessions/{agent.session}/prompt", json={"text": "hello"})
    seq, _ = await agent.mail()
    await agent.begin([seq])
    await agent.stream("m1", ["It "])
    return agent


async def _measure(
    gateway: GatewayProcess, agents: list[FakeAgent], late: list[float], seconds: float
) -> Json:
    """Write events evenly, and say how late they came."""
    late.clear()
    pause_s = (STREAMS + SOCKETS) / SESSIONS / PER_SECOND
    loop, number, cpu_s = asyncio.get_running_loop(), 0, gateway.cpu_s()
    began = due = loop.time()
    while due - began < seconds:
        agent = agents[number % SESSIONS]
        number += 1
        delta = Delta(type="text_delta", index=0, text=str(time.monotonic_ns()))
        update = MessageUpdate(
            run_id=agent.run_id, log_seq=agent.last, message_id="m1", n=number // SESSIONS + 1, delta=delta
        )
        await agent.emit(update)
        due += pause_s
        await asyncio.sleep(max(0.0, due - loop.time()))
    took = loop.time() - began
    await asyncio.sleep(1.0)
    return {
        "delivered_s": round(len(late) / took, 1),
        "late_ms": spread(late),
        "cpu": round((gateway.cpu_s() - cpu_s) / took, 3),
    }


def _note(late: list[float], data: bytes) -> None:
    now = time.monotonic_ns()
    late.extend((now - int(made)) / 1e6 for made in _MADE_AT.findall(data))


class _Reader(asyncio.Protocol):
    """Reads what comes; a frame is never cut in two here, since each is written at once and small."""

    def __init__(self, note: Callable[[bytes], None]) -> None:
        self._note = note

    def data_received(self, data: bytes) -> None:
        self._note(data)


@asynccontextmanager
async def _stream(gateway: GatewayProcess, session: str, late: list[float]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(
        lambda: _Reader(lambda data: _note(late, data)), "127.0.0.1", gateway.port
    )
    transport.write(get(f"/api/sessions/{session}/events?after=-1"))
    try:
        yield
    finally:
        transport.abort()


@asynccontextmanager
async def _socket(gateway: GatewayProcess, session: str, late: list[float]) -> AsyncIterator[None]:
    async with connect(f"ws://127.0.0.1:{gateway.port}/ws", compression=None) as opened:
        await opened.send(
            json.dumps({"type": "req", "id": "1", "method": "connect", "params": {"token": TOKEN}})
        )
        await opened.recv()
        asked = {"type": "req", "id": "2", "method": "subscribe", "params": {"session": session, "after": -1}}
        await opened.send(json.dumps(asked))
        reading = asyncio.create_task(_read(opened, late))
        try:
            yield
        finally:
            reading.cancel()


async def _read(opened: ClientConnection, late: list[float]) -> None:
    async for frame in opened:
        _note(late, frame.encode() if isinstance(frame, str) else frame)


async def _cut_off(gateway: GatewayProcess) -> int:
    """How many connections are left after those that read nothing had to be dropped."""
    deadline, left = time.monotonic() + CUT_OFF_WITHIN_S, 0
    while time.monotonic() < deadline:
        left = max(0, await gateway.connections() - STREAMS - SOCKETS - 5)
        if not left:
            return 0
        await asyncio.sleep(1.0)
    return left
