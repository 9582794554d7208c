"""A program with tools of the SDK, at a NATS server that restarts or does not want it any more."""

import asyncio
from pathlib import Path

import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.requests import call_service, discover
from fairlead_common.bus.settings import BusSettings
from fairlead_sdk import Call, ToolServer, tool
from tests.support.nats_server import NatsServer


async def test_a_call_under_way_is_answered_after_the_server_restarted(tmp_path: Path) -> None:
    begun, go, calls = asyncio.Event(), asyncio.Event(), []

    @tool
    async def slow(call: Call) -> str:
        """Takes its time."""
        calls.append(call.id)
        begun.set()
        await go.wait()
        await call.progress("nearly")
        return "done"

    async def shown(_: bytes) -> None:
        """Progress may be lost."""

    nats, stop = NatsServer(tmp_path / "nats").start(), asyncio.Event()
    try:
        bus = await Bus.connect(BusSettings(url=nats.url), name="caller")
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(ToolServer("lab", [slow], url=nats.url).run(stop))
            while not await discover(bus, name="lab", quiet_s=0.2):
                await asyncio.sleep(0.05)
            headers = {"Fairlead-Call-Id": "c1"}
            calling = tasks.create_task(
                call_service(bus, "lab.slow", b"{}", headers, timeout_s=50, progress=shown)
            )
            await begun.wait()
            nats.kill()
            nats.start()
            while not await discover(bus, name="lab", quiet_s=0.2):
                await asyncio.sleep(0.05)
            go.set()
            reply = await calling
            stop.set()
            await serving
        await bus.close()
    finally:
        nats.stop()
    assert (reply.kind, reply.data, calls) == ("answer", b"done", ["c1"])


async def test_a_program_that_nats_ended_the_connection_to_ends_and_says_why() -> None:
    """nats-py never connects again after such an error: the program would stand there without its tools."""

    @tool
    async def ready() -> str:
        """Is never asked."""
        return "yes"

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.12.0","headers":true,"max_payload":1048576}\r\n')
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            elif line.startswith(b"SUB lab.ready"):
                writer.write(b"-ERR 'Authorization Violation'\r\n")
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server, asyncio.timeout(30):
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionError, match="NATS ended the connection"):
            await ToolServer("lab", [ready], url=f"nats://127.0.0.1:{port}").run(asyncio.Event())
