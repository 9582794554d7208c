"""Moving a session over HTTP: where to, and why not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects
from fairlead_common.protocol.messages import ExecutorInfo
from fairlead_common.protocol.notices import CreateSession, MoveSession
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


async def created(bus: Bus, session: str) -> CreateSession:
    """The notice that created a session."""
    record = await bus.last(subjects.SESSIONS, subjects.mail(session, "notice", "create"))
    assert record is not None
    return msgspec.json.decode(record.data, type=CreateSession)


async def test_session_asks_for_a_folder_on_a_host_that_takes_work(gateway: RunningGateway, bus: Bus) -> None:
    await announce(bus, "here")
    await announce(bus, "away", draining=True)
    body = {"workspace": {"path": "/home/me/project", "host": "here"}}
    status, answer = await gateway.call("POST", "/api/sessions", body)
    assert (status, answer["workspace"], answer["workspace_kind"]) == (201, "/home/me/project", "folder")
    assert answer["host"] == "here"
    notice = await created(bus, answer["id"])
    assert (notice.workspace, notice.host) == ("/home/me/project", "here")
    status, answer = await gateway.call("POST", "/api/sessions", {"workspace": {"path": "/home/me/project"}})
    assert (status, answer["host"]) == (201, "here")
    status, answer = await gateway.call(
        "POST", "/api/sessions", {"workspace": {"path": "/x", "host": "away"}}
    )
    assert (status, answer["error"]["field"]) == (409, "workspace.host")
    assert "these do: here" in answer["error"]["message"]


@pytest.mark.parametrize("workspace", ["project", "/", "//x", "/a/../b", "/a/", "/a\n", "/" + "a" * 4096])
async def test_folder_of_a_session_is_a_plain_absolute_path(gateway: RunningGateway, workspace: str) -> None:
    status, answer = await gateway.call("POST", "/api/sessions", {"workspace": {"path": workspace}})
    assert status == 400
    assert answer["error"]["field"].startswith("workspace")


async def test_folder_of_a_session_needs_the_right_to_approve(gateway: RunningGateway, bus: Bus) -> None:
    await announce(bus, "here")
    token = gateway.auth_file.mint(["read", "write"], 60, user="writer")
    headers = {"Authorization": f"Bearer {token}"}
    status, answer = await gateway.call(
        "POST", "/api/sessions", {"workspace": {"path": "/etc"}}, headers=headers
    )
    assert (status, answer["error"]["field"]) == (403, "workspace")
