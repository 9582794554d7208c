"""HTTP and WebSocket connections with the limits that uvicorn does not have."""

import asyncio
import re
from typing import Any, Final

import uvicorn
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request as Handshake

from fairlead_gateway.http.unread import UnreadBytes

HEADERS_WITHIN_S: Final = 10.0
MAX_HEADER_BYTES: Final = 32 * 1024
MAX_FRAGMENTS: Final = 10_000  # of a WebSocket message
HIGH_WATER_BYTES: Final = 16 * 1024  # that wait beside the system's buffer until a writer has to wait

_TOO_BIG: Final = 1009
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]*)", re.I)
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)
_BAD_HANDSHAKE: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class ServerConfig(uvicorn.Config):
    """Settings of the server, and its connections that are between two requests.

    Args:
        max_connections: that may be open. A further one ends the one that has been idle longest, or is
            answered with 503 if none is.
        unread: what waits for clients that do not read.
    """

    def __init__(self, app: Any, *, max_connections: int, unread: UnreadBytes, **options: Any) -> None:
        super().__init__(app, **options)
        self.max_connections = max_connections
        self.unread = unread
        self.idle: dict[HttpProtocol, None] = {}  # the one that has been idle longest comes first


class _CountsUnread(asyncio.Protocol):
    """Tells of what waits for its client."""

    config: ServerConfig
    transport: asyncio.Transport

    def connection_lost(self, exc: Exception | None) -> None:
        """A client is gone."""
        self.config.unread.end(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read as fast as it is sent to."""
        super().pause_writing()
        self.config.unread.begin(self, self.transport.get_write_buffer_size, self.transport.abort)

    def resume_writing(self) -> None:
        """It has caught up."""
        self.config.unread.end(self)
        super().resume_writing()


class HttpProtocol(_CountsUnread, HttpToolsProtocol):
    """HTTP/1.1 with limits: time and size of the head of a request, number of connections."""

    config: ServerConfig
    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected; it has to say something."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self._expect_head()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """A client is gone."""
        self.config.idle.pop(self, None)
        self._head_is_here()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came. If no request begins with them, one has to begin soon: uvicorn waits for ever."""
        super().data_received(data)
        if self in self.config.idle and self._timer is None:
            self._expect_head()

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self.config.idle.pop(self, None)
        self._head_bytes = 0
        self._is_in_head = True
        if self._timer is None:
            self._expect_head()

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a field behind the body: no proxy has looked at those, so they count for nothing."""
        self._count(len(name) + len(value))
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request can be handled."""
        self._head_is_here()
        self._is_in_head = False
        self._check_address()
        self._check_coding()
        super().on_headers_complete()
        self.scope["fairlead.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def on_response_complete(self) -> None:
        """The request is answered."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.config.idle[self] = None

    def _make_room(self) -> None:
        if len(self.connections) <= self.config.max_connections:
            return
        longest = next(iter(self.config.idle), None)
        if longest is not None:
            del self.config.idle[longest]
            longest.transport.close()
            return
        self.transport.write(_FULL)
        self.transport.close()

    def _check_address(self) -> None:
        """A whole URL must name the host that the header names: a proxy goes by the one, we by the other."""
        if self.url.startswith(b"/") or self.url == b"*":
            return
        named = _ABSOLUTE.match(self.url)
        hosts = [value.lower() for name, value in self.headers if name == b"host"]
        if named is None or hosts != [named[1].lower()]:
            raise ValueError("the address and the header Host name different hosts")  # becomes a 400

    def _check_coding(self) -> None:
        """No other coding than `chunked`, said once: a proxy may go by the first of several."""
        codings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if codings and [coding.strip().lower() for coding in codings] != [b"chunked"]:
            raise ValueError("Transfer-Encoding: only `chunked`, once")  # becomes a 400

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"request head: at most {MAX_HEADER_BYTES} bytes")  # becomes a 400

    def _expect_head(self) -> None:
        self._timer = self.loop.call_later(HEADERS_WITHIN_S, self.transport.abort)

    def _head_is_here(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class SocketProtocol(_CountsUnread, WebSocketsSansIOProtocol):
    """WebSocket connections with limits, which an application can drop at once, however much waits."""

    config: ServerConfig

    def data_received(self, data: bytes) -> None:
        """Bytes came. A handshake that cannot be read is refused: uvicorn waits for another one for ever."""
        super().data_received(data)
        is_broken = self.conn.handshake_exc is not None and not self.handshake_initiated
        if is_broken and not self.transport.is_closing():
            self.transport.write(_BAD_HANDSHAKE)
            self.transport.close()

    def handle_connect(self, event: Handshake) -> None:
        """The handshake is here; the application starts after this."""
        super().handle_connect(event)
        if self.handshake_initiated and not self.close_sent:
            self.scope["fairlead.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]
            self.scope["fairlead.drained"] = self.writable.wait  # type: ignore[typeddict-unknown-key]

    def handle_cont(self, event: Frame) -> None:
        """A fragment. Those without content count for no limit of size."""
        if len(self.frames) >= MAX_FRAGMENTS:
            self.conn.send_close(_TOO_BIG, f"at most {MAX_FRAGMENTS} fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """Answer, unless the client does not read what it is answered."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.transport.abort()

    async def send(self, message: ASGISendEvent) -> None:
        """Send; an answer that refuses the handshake ends it, and is no error of the application."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True
