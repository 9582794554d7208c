"""Fixtures that many of these tests use. A file that needs another one of the same name makes its own."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from fairlead_agent.responders.workspace_gc import WorkspaceGcResponder
from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from tests.integration.gateway_fixture import RunningGateway, running_gateway
from tests.integration.tools_fixture import Host
from tests.support.agent_world import World, world
from tests.support.nats_server import NatsServer


@pytest.fixture
async def w(bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """The surroundings of agents: a scripted model, and tools that this test's own loop serves."""
    async with world(bus, tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
async def gateway(bus: Bus, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """A gateway with the settings that it has by default."""
    async with running_gateway(nats_server.url, tmp_path) as running:
        yield running


@pytest.fixture
async def host(tmp_path: Path, bus: Bus, nats_server: NatsServer) -> AsyncIterator[Host]:
    """A machine for executors, which the test starts."""
    made = Host(tmp_path / "machine", bus, nats_server)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:  # agents keep the list of workspaces to remove
        tasks.create_task(WorkspaceGcResponder(bus).run(stop))
        yield made
        stop.set()
    made.close()


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of Fairlead in the environment."""
    for name in list(os.environ):
        if name.startswith("FAIRLEAD_"):
            monkeypatch.delenv(name)


@pytest.fixture
async def second(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """Someone else's connection."""
    connection = await Bus.connect(BusSettings(url=nats_server.url), name="other")
    yield connection
    await connection.close()


@pytest.fixture
async def stranger(gateway: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    """A client without credentials."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20, verify=False) as client:
        yield client
