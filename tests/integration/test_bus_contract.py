"""nats-server keeps the contract that the bus builds on; `tests/unit/in_memory` has the other half."""

import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from tests.support.nats_server import NatsServer

pytest.register_assert_rewrite(
    "tests.support.bus_contract.records",
    "tests.support.bus_contract.values",
    "tests.support.bus_contract.deliveries",
)

from tests.support.bus_contract.deliveries import *  # noqa: E402, F403
from tests.support.bus_contract.records import *  # noqa: E402, F403
from tests.support.bus_contract.values import *  # noqa: E402, F403


class _Real:
    """See `Server` of the contract."""

    def __init__(self, server: NatsServer) -> None:
        self.kill = server.kill
        self.start = server.start
        self._url = server.url

    async def connect(self, name: str) -> Bus:
        return await Bus.connect(BusSettings(url=self._url), name=name)


@pytest.fixture
def server(nats_server: NatsServer) -> _Real:
    """The server behind `bus`."""
    return _Real(nats_server)
