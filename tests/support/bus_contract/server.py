"""The server that a test of the contract runs against."""

from typing import Protocol

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.ids import new_id


class Server(Protocol):
    """nats-server, or the one in memory."""

    def kill(self) -> None:
        """As by kill -9."""

    def start(self) -> object:
        """Again, with what it had stored."""

    async def connect(self, name: str) -> Bus:
        """Another connection; the test closes it."""


async def append(bus: Bus, session: str, expected: int, record_id: str | None = None) -> int:
    return await bus.append(
        s.SESSIONS, s.session_log(session), b"{}", record_id=record_id or new_id(), expected=expected
    )
