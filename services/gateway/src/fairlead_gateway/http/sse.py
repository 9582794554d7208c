"""What all responses of server-sent events share: headers, intervals and how a chunk is written."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Send

KEEP_ALIVE_S: Final = 10.0
SEND_WITHIN_S: Final = 20.0  # a client that reads nothing for so long is cut off, and may resume

HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def event(kind: bytes, name: bytes, data: bytes) -> bytes:
    """One event. `name`: its id. `data`: one line."""
    return b"event: %s\nid: %s\ndata: %s\n\n" % (kind, name, data)


def headers_alone() -> Response:
    """The answer to a HEAD request."""
    return Response(headers={name.decode(): value.decode() for name, value in HEADERS})


async def start(send: Send, *more: tuple[bytes, bytes]) -> Callable[[bytes], Awaitable[None]]:
    """Send the status and the headers, with `more` of them; the function that writes a chunk.

    That function raises TimeoutError if the client read nothing for `SEND_WITHIN_S`.
    """
    await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *more]})

    async def write(chunk: bytes) -> None:
        async with asyncio.timeout(SEND_WITHIN_S):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

    return write


async def end(send: Send) -> None:
    """Close the response."""
    await send({"type": "http.response.body", "body": b"", "more_body": False})
