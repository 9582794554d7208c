"""An agent service in memory."""

from collections.abc import AsyncIterator

import pytest

from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.memory_world import MemoryWorld, memory_world


@pytest.fixture
async def w(server: FakeServer, bus: FakeBus, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryWorld]:
    """Bus, model and executor, and no agent yet."""
    async with memory_world(server, bus, monkeypatch) as made:
        yield made
        assert made.mind.problems == []
