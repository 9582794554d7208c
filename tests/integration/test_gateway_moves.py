"""Moving a session over HTTP: where to, and why not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects
from fairlead_common.protocol.messages import ExecutorInfo
from fairlead_common.protocol.notices import MoveSession
from tests.integration.gateway_fixture import FakeAgent, RunningGateway, running_gateway
from tests.support.nats_server import NatsServer


@pytest.fixture
async def gateway(bus: Bus, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    overrides: dict[str, object] = {"agents.own.workspace_kind": "scratch"}
    async with running_gateway(nats_server.url, tmp_path, overrides) as running:
        yield running


async def announce(bus: Bus, host: str, **fields: object) -> None:
    info = ExecutorInfo(executor="e", host=host, **fields)  # type: ignore[arg-type]
    await bus.publish(subjects.kv("executors", f"{host}.e"), msgspec.json.encode(info))


async def test_session_moves_to_the_least_loaded_other_host(gateway: RunningGateway, bus: Bus) -> None:
    for host, running in (("now", 0), ("busy", 7), ("free", 1)):
        await announce(bus, host, running=running)
    await announce(bus, "away", draining=True)
    session = await gateway.session(agent="own")
    await FakeAgent(bus, session).list_as(
        agent="own", workspace_kind="scratch", host="now", sandbox="local", last_seq=99
    )
    async with asyncio.timeout(10):
        while (await gateway.call("GET", f"/api/sessions/{session}"))[1]["host"] != "now":
            await asyncio.sleep(0.01)
    status, answer = await gateway.call("POST", f"/api/sessions/{session}/move")
    assert (status, answer["host"]) == (202, "free")
    moves = [
        msgspec.json.decode(record.data, type=MoveSession)
        async for record in bus.read(subjects.SESSIONS, subjects.session_mail(session))
        if ".move-" in record.subject
    ]
    assert [(move.host, move.sender) for move in moves] == [("free", "admin")]
    status, answer = await gateway.call("POST", f"/api/sessions/{session}/move", {"host": "busy"})
    assert (status, answer["host"]) == (202, "busy")
    for host in ("away", "nowhere"):
        status, answer = await gateway.call("POST", f"/api/sessions/{session}/move", {"host": host})
        assert status == 409
        assert "busy, free, now" in answer["error"]["message"]


async def test_session_with_a_folder_moves_only_by_force(gateway: RunningGateway, bus: Bus) -> None:
    await announce(bus, "now")
    await bus.publish(subjects.kv("workspaces", "agent.main"), b"now")
    session = await gateway.session()
    status, answer = await gateway.call("POST", f"/api/sessions/{session}/move")
    assert (status, answer["error"]["field"]) == (409, "force_empty")
    status, answer = await gateway.call("POST", f"/api/sessions/{session}/move", {"force_empty": True})
    assert status == 409
    assert "no other host of pool default" in answer["error"]["message"]
    await announce(bus, "then")
    status, answer = await gateway.call("POST", f"/api/sessions/{session}/move", {"force_empty": True})
    assert (status, answer["host"]) == (202, "then")
    assert (await gateway.call("POST", "/api/sessions/nobody/move"))[0] == 404
