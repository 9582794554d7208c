"""Fixtures that all tests may use."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from fairlead_common.bus import Bus, BusSettings
from fairlead_common.streams import provision
from tests.support.nats_server import NatsServer

LONGEST_FIRST: Final = ("deploy", "chaos", "e2e", "attacks")  # folders; the others after them


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first. A file's tests stay together: many share one running Fairlead.

    All of `deploy` share one deployment.
    """
    items.sort(key=lambda item: _place(_parts(item)))
    for item in items:
        parts = _parts(item)
        item.add_marker(pytest.mark.xdist_group("deploy" if parts[0] == "deploy" else ".".join(parts)))


def _parts(item: pytest.Item) -> Sequence[str]:
    return item.path.relative_to(Path(__file__).parent).with_suffix("").parts


def _place(parts: Sequence[str]) -> int:
    return LONGEST_FIRST.index(parts[0]) if parts[0] in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A fresh nats-server with JetStream."""
    server = NatsServer(tmp_path / "nats").start()
    yield server
    server.stop()


@pytest.fixture
async def bus(nats_server: NatsServer) -> AsyncIterator[Bus]:
    """A connection to `nats_server` with all streams and buckets made."""
    connection = await Bus.connect(BusSettings(url=nats_server.url), name="test")
    await provision(connection)
    yield connection
    await connection.close()
