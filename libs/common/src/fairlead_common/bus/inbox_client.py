"""The NATS client that answers inboxes only.

Whoever asks chooses the subject of the answer. A user that may ask a service could name a subject there that
only the service may write to, such as a session's log, and have it write the answer there. Between accounts
the server has a subject of its own for each answer; this is for servers that give all users one account.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.client import Client as NatsClient

# Of this account, of another, and of consumers that wait for an acknowledgement: the server lets no user make
# up the latter two. The last is how a snapshot of a stream is told to go on; it writes nothing.
_ANSWERED = (b"_INBOX", b"_R_.", b"$JS.ACK.", b"$JS.SNAPSHOT.ACK.")


CLOSE_S = 1.0


class InboxClient(NatsClient):
    """The library's client; a message that wants its answer anywhere else comes without a reply subject."""

    async def _connect_to_server(self, s: Any) -> None:
        await super()._connect_to_server(s)
        transport: Any = self._transport
        transport.wait_closed = _bounded(type(transport).wait_closed.__get__(transport))

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if reply and not reply.startswith(_ANSWERED):
            reply = b""
        await super()._process_msg(sid, subject, reply, data, headers)


def _bounded(wait_closed: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """The same, for a second at most: after a failed handshake the stream never says that it is closed."""

    async def bounded() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await wait_closed()

    return bounded
