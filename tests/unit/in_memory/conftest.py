"""Tests of one process without sockets: a server in memory, and time that jumps."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest

from fairlead_common.bus.streams import provision
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.virtual_time import VirtualLoop, wall_clock_follows


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """All tests here run on a loop whose time jumps."""
    return {"virtual": VirtualLoop}


@pytest.fixture(autouse=True)
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The wall clock is that of the loop."""
    with wall_clock_follows(monkeypatch):
        yield


@pytest.fixture(autouse=True)
def no_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each agent makes its key in a home of its own, a thousand times in some tests; no power fails here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    """A server in memory, without streams."""
    made = FakeServer()
    yield made
    made.close()


@pytest.fixture
async def bus(server: FakeServer) -> AsyncIterator[FakeBus]:
    """A connection to `server`, with all streams and buckets made."""
    connection = await server.connect("test")
    await provision(connection)
    yield connection
    await connection.close()
