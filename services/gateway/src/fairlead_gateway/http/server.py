"""The HTTP server inside the service's task group: uvicorn without signal handlers of its own."""

import asyncio
import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from typing import Any, Final

import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request as Handshake

from fairlead_common.errors import InvalidInputError, UnsafeConfigurationError
from fairlead_gateway.gateway import Streams

log = structlog.get_logger()

HEADERS_WITHIN_S: Final = 10.0
MAX_HEADER_BYTES: Final = 32 * 1024
FINISH_WITHIN_S: Final = 5
KEEP_ALIVE_S: Final = 75
BACKLOG: Final = 2048
MAX_FRAME_BYTES: Final = 4 << 20  # of a WebSocket message
PING_S: Final = 20.0

_PUBLIC_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?")


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 with limits that uvicorn does not have: time and size of the head of a request."""

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected; it has to say something."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """A client is gone."""
        self._head_is_here()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._timer is None:
            self._expect_head()

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The request can be handled."""
        self._head_is_here()
        super().on_headers_complete()
        self.scope["fairlead.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

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


class SocketProtocol(WebSocketsSansIOProtocol):
    """WebSocket connections that an application can drop at once, however much waits to be sent."""

    def handle_connect(self, event: Handshake) -> None:
        """The handshake is here; the application starts after this."""
        super().handle_connect(event)
        if self.handshake_initiated and not self.close_sent:
            self.scope["fairlead.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    async def send(self, message: ASGISendEvent) -> None:
        """Send; an answer that refuses the handshake ends it, and is no error of the application."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the service."""
        yield


class HttpServer:
    """Serves `app` on the address of this start."""

    def __init__(self, app: ASGIApp, streams: Streams, host: str, port: int) -> None:
        self._streams = streams
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its own lines are not JSON
        options: dict[str, Any] = {"loop": "none"}
        self._server = _Server(
            uvicorn.Config(
                app,
                http=Protocol,
                ws=SocketProtocol,
                ws_max_size=MAX_FRAME_BYTES,
                ws_ping_interval=PING_S,
                ws_ping_timeout=PING_S,
                ws_per_message_deflate=False,  # a small frame must not become a large one
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=FINISH_WITHIN_S,
                backlog=BACKLOG,
                **options,
            )
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """A part of the service: answer until `stop`, then finish what was begun."""
        log.info("listening", host=self._socket.getsockname()[0], port=self.port)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(self._server.serve(sockets=[self._socket]), name="http")
            ending = tasks.create_task(self._end(stop), name="http-end")
            await serving
            ending.cancel()

    async def _end(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._streams.drain()
        self._server.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A listening address that other gateways of this machine may share.

    Raises:
        UnsafeConfigurationError: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; else a body waits 40 ms behind its head.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise UnsafeConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror or error}"
        ) from error
    sock.setblocking(False)
    return sock


def address_from_environment() -> tuple[str, int]:
    """`FAIRLEAD_HOST_BIND` (default 127.0.0.1) and `FAIRLEAD_PORT` (default 8420).

    Raises:
        InvalidInputError: the port is none.
    """
    text = os.environ.get("FAIRLEAD_PORT") or "8420"
    if not text.isdecimal() or int(text) > 65_535:
        raise InvalidInputError("FAIRLEAD_PORT", f"must be a number from 0 to 65535, got {text!r}")
    return os.environ.get("FAIRLEAD_HOST_BIND") or "127.0.0.1", int(text)


def public_host_from_environment() -> str:
    """The name (and port, unless 443) of `FAIRLEAD_PUBLIC_URL`: where a proxy offers this gateway over TLS.

    Raises:
        InvalidInputError: it is no `https://` address of a host alone.
    """
    text = os.environ.get("FAIRLEAD_PUBLIC_URL") or ""
    host = text.removeprefix("https://").removesuffix("/")
    if text and (text == host or not _PUBLIC_HOST.fullmatch(host)):
        raise InvalidInputError("FAIRLEAD_PUBLIC_URL", f"must be https://<name>[:<port>], got {text[:200]!r}")
    return host.lower().removesuffix(":443")
