"""`FakeBus`: the bus over a server in memory, for tests of what stands on it.

Everything of `Bus` is the code that runs in production; only the server is another. What the fake server
does is proved by `bus_contract.py`, which runs against it and against nats-server.

    server = FakeServer()
    bus = await server.connect("worker")
    server.faults.add("fairlead.session.a.log", Fault.ANSWER_LOST)

With `virtual_time.py` waits take no time.
"""

from typing import Self

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from tests.support.fake_nats.client import FakeClient
from tests.support.fake_nats.server import FakeNats


class FakeBus(Bus):
    """A bus in memory. Make it with `open`."""

    @classmethod
    async def open(cls, server: FakeNats, *, name: str = "test", settings: BusSettings | None = None) -> Self:
        """A connection to the server in memory."""
        client = FakeClient(server)
        bus = cls(client, settings or BusSettings())
        await client.connect(name=name, inbox_prefix=f"_INBOX_{name}", **bus._callbacks())
        await bus.answers.begin()
        return bus


class FakeServer(FakeNats):
    """The server, as a test holds it."""

    async def connect(self, name: str) -> FakeBus:
        """Another connection."""
        return await FakeBus.open(self, name=name)

    def bury(self, bus: FakeBus) -> None:
        """The process behind `bus` is dead: nothing of it comes or goes any more."""
        client = bus.client
        assert isinstance(client, FakeClient)
        client.die()
