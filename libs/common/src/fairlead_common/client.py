"""The NATS client that answers inboxes only.

Whoever asks chooses the subject of the answer. A user that may ask a service could name a subject there that
only the service may write to, such as a session's log, and have it write the answer there.
"""

from nats.aio.client import Client as NatsClient

# Of services, of other systems, and of consumers that wait for an acknowledgement. The server lets no user
# make up the last.
_ANSWERED = (b"_INBOX", b"$JS.ACK.")


class Client(NatsClient):
    """The library's client; a message that wants its answer anywhere else comes without a reply subject."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        if reply and not reply.startswith(_ANSWERED):
            reply = b""
        await super()._process_msg(sid, subject, reply, data, headers)
