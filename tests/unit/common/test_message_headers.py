"""Headers of messages: what is read the quick way is what the client library reads."""

import pytest
from nats.aio.client import Client as NatsClient

from fairlead_common.bus.inbox_client import InboxClient

BLOCKS = {
    "a record": b"NATS/1.0\r\nNats-Sequence: 7\r\nFairlead-Id: x_1\r\nNats-Subject: a.b.>\r\n\r\n",
    "no blank": b"NATS/1.0\r\nA:1\r\nB: 2\r\n\r\n",
    "many blanks": b"NATS/1.0\r\nA:   1  \r\nB:\t2\r\n\r\n",
    "a colon in the value": b"NATS/1.0\r\nNats-Time-Stamp: 2026-01-01T10:00:00Z\r\n\r\n",
    "an empty value": b"NATS/1.0\r\nA: \r\nB:\r\n\r\n",
    "twice": b"NATS/1.0\r\nA: 1\r\nA: 2\r\n\r\n",
    "other letters": "NATS/1.0\r\nA: größer\r\n\r\n".encode(),
    "bytes that are no text": b"NATS/1.0\r\nA: \xff\r\n\r\n",
    "a name with a blank": b"NATS/1.0\r\nA b: 1\r\nC: 2\r\n\r\n",
    "a line without a colon": b"NATS/1.0\r\nA\r\nC: 2\r\n\r\n",
    "a status": b"NATS/1.0 503\r\n\r\n",
    "a status with a text": b"NATS/1.0 404 No Messages\r\n\r\n",
    "a status with headers": b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 3\r\n\r\n",
    "nothing in it": b"NATS/1.0\r\n\r\n",
}


# Any user may send these; at some of them the library gives up, and with it the connection.
_ADDED = b"Nats-Stream: S\r\nNats-Sequence: 7\r\n\r\n"  # by the server, when it gives a record
UNREADABLE = {
    "too short": (b"\r\n\r\n", None),
    "of one byte": (b"N", None),
    "too short, of a record": (b"\r\n" + _ADDED, "7"),
    "a status that is no text": (b"NATS/1.0 \xff\xff \xff\r\n" + _ADDED, "7"),
}


@pytest.mark.parametrize(("block", "sequence"), UNREADABLE.values(), ids=UNREADABLE)
async def test_a_block_that_the_library_cannot_read_has_what_the_server_added(
    block: bytes, sequence: str | None
) -> None:
    found = await InboxClient()._process_headers(block)
    assert (found or {}).get("Nats-Sequence") == sequence


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
async def test_headers_read_as_the_library_reads_them(block: bytes) -> None:
    assert await InboxClient()._process_headers(block) == await NatsClient()._process_headers(block)
