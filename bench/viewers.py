"""Live viewers of one gateway: how late events arrive, and what viewers that read nothing do to the others.

A gateway and a nats-server as processes of their own. Sessions are written as an agent would, each event with
the time at which it was made; 300 viewers read server-sent events, 200 use the WebSocket API. Then beside
1,000 viewers that asked for a long log and read nothing.
"""

import asyncio
import json
import os
import re
import resource
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
from websockets.asyncio.client import ClientConnection, connect

from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options
from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.protocol.events import Delta, MessageUpdate
from tests.integration.gateway_fixture import FakeAgent
from tests.support.nats_server import NatsServer, free_port

SESSIONS = 10
STREAMS = 300  # of server-sent events
SOCKETS = 200
IDLE_READERS = 1000
PER_SECOND = 3000  # events delivered, over all viewers
SECONDS = 20.0
LONG_LOG = 200  # replies of 50 KB
CUT_OFF_WITHIN_S = 40.0
TOKEN = "a-token-for-measurements-only"

_MADE_AT = re.compile(rb'"text":"(\d+)"')


@dataclass
class RunningGateway:
    """A gateway as a process."""

    port: int
    process: psutil.Process
    http: httpx.AsyncClient

    def memory_mb(self) -> float:
        return round(self.process.memory_full_info().pss / 1e6, 1)

    def cpu_s(self) -> float:
        spent = self.process.cpu_times()
        return float(spent.user + spent.system)


async def viewers(options: Options) -> Result:
    """300 viewers and 200 WebSockets at 3,000 events a second; then 1,000 that read nothing beside them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 8192), hard), hard))
    seconds = SECONDS / 4 if options.quick else SECONDS
    async with AsyncExitStack() as stack:
        gateway, bus = await stack.enter_async_context(_running(options.work / "viewers"))
        agents = [await _session(gateway, bus) for _ in range(SESSIONS)]
        empty = gateway.memory_mb()
        late: list[float] = []
        for number in range(STREAMS):
            await stack.enter_async_context(_stream(gateway, agents[number % SESSIONS].session, late))
        for number in range(SOCKETS):
            await stack.enter_async_context(_socket(gateway, agents[number % SESSIONS].session, late))
        await asyncio.sleep(1.0)
        alone = await _measure(gateway, agents, late, seconds)
        watched = gateway.memory_mb()
        long_log = await _session(gateway, bus)
        for number in range(LONG_LOG):
            await long_log.reply(f"long{number}", "x" * 50_000)
        for _ in range(options.scaled(IDLE_READERS)):
            await stack.enter_async_context(_reads_nothing(gateway, long_log.session))
        beside = await _measure(gateway, agents, late, seconds)
        crowded = gateway.memory_mb()
        left = await _cut_off(gateway)
    by = f"of {options.scaled(IDLE_READERS)} that read nothing"
    shown = [
        Row("events delivered", alone["delivered_s"], "/s", PER_SECOND * 0.95, at_least=True),
        Row("an event is late, p50", alone["late_ms"]["p50"], "ms"),
        Row("an event is late, p99", alone["late_ms"]["p99"], "ms", 100.0),
        Row("CPU of the gateway", alone["cpu"], "cores"),
        Row(f"beside them {by}: p99", beside["late_ms"]["p99"], "ms", 100.0),
        Row("memory: gateway alone", empty, "MB"),
        Row("memory: each of 500 viewers", round((watched - empty) * 1000 / (STREAMS + SOCKETS), 1), "KB"),
        Row(f"memory: each {by}", round((crowded - watched) * 1000 / options.scaled(IDLE_READERS), 1), "KB"),
        Row(f"still connected, {by}", left, "", 0.0),
    ]
    return shown, {"alone": alone, "beside": beside, "memory_mb": [empty, watched, crowded]}


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[tuple[RunningGateway, Bus]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server, port = NatsServer(folder / "nats", synced=False).start(), free_port()
    bus = await Bus.connect(BusSettings(url=server.url), name="viewers")
    await provision(bus)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")},
        "FAIRLEAD_HOME": str(folder),
        "FAIRLEAD_NATS_URL": server.url,
        "FAIRLEAD_PORT": str(port),
        "FAIRLEAD_TOKEN": TOKEN,
    }
    log = (folder / "gateway.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead_gateway.main", env=environ, stdout=log, stderr=log
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as http:
        try:
            async with asyncio.timeout(30):
                while not await _answers(http):
                    await asyncio.sleep(0.1)
            yield RunningGateway(port, psutil.Process(process.pid), http), bus
        finally:
            process.kill()
            await process.wait()
            log.close()
            await bus.close()
            server.stop()


async def _answers(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/api/me")).status_code == 200
    except httpx.HTTPError:
        return False


async def _session(gateway: RunningGateway, bus: Bus) -> FakeAgent:
    """A session in the middle of a reply."""
    made = await gateway.http.post("/api/sessions", json={})
    agent = FakeAgent(bus, made.json()["id"])
    await gateway.http.post(f"/api/sessions/{agent.session}/prompt", json={"text": "hello"})
    seq, _ = await agent.mail()
    await agent.begin([seq])
    await agent.stream("m1", ["It "])
    return agent


async def _measure(
    gateway: RunningGateway, agents: list[FakeAgent], late: list[float], seconds: float
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


def _request(session: str, after: int) -> bytes:
    return (
        f"GET /api/sessions/{session}/events?after={after} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {TOKEN}\r\n\r\n"
    ).encode()


@asynccontextmanager
async def _stream(gateway: RunningGateway, session: str, late: list[float]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(
        lambda: _Reader(lambda data: _note(late, data)), "127.0.0.1", gateway.port
    )
    transport.write(_request(session, -1))
    try:
        yield
    finally:
        transport.abort()


@asynccontextmanager
async def _reads_nothing(gateway: RunningGateway, session: str) -> AsyncIterator[None]:
    loop, sock = asyncio.get_running_loop(), socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)  # else the kernel reads megabytes for it
    sock.setblocking(False)
    await loop.sock_connect(sock, ("127.0.0.1", gateway.port))
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
    transport.pause_reading()
    transport.write(_request(session, 0))
    try:
        yield
    finally:
        transport.abort()


@asynccontextmanager
async def _socket(gateway: RunningGateway, session: str, late: list[float]) -> AsyncIterator[None]:
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


async def _cut_off(gateway: RunningGateway) -> int:
    """How many connections are left after those that read nothing had to be dropped."""
    deadline, left = time.monotonic() + CUT_OFF_WITHIN_S, 0
    while time.monotonic() < deadline:
        found = await asyncio.to_thread(gateway.process.net_connections, "tcp")
        left = max(0, sum(each.status == psutil.CONN_ESTABLISHED for each in found) - STREAMS - SOCKETS - 5)
        if not left:
            return 0
        await asyncio.sleep(1.0)
    return left
