"""The official SDK as a client, and what is known of its ways. Importing this costs a second and 60 MB.

Nothing else imports the SDK. What a call came to is told apart here: whether the server answered, cannot
have heard of it, or may have done it.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TextIO, cast

import anyio
import httpx2
import mcp_types
import msgspec
import pydantic
from mcp import MCPError
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

from fairlead_common.config import McpServer
from fairlead_common.service import VERSION
from fairlead_tools.mcp_servers.catalogue import Listed

MAX_TOOLS: Final = 500
MAX_PAGES: Final = 50
MAX_EVENT_BYTES: Final = 16 << 20
MAX_BODY_BYTES: Final = 32 << 20
MAX_LOG_BYTES: Final = 1 << 20
REQUEST_S: Final = 30.0  # of anything but a call

_NOT_STARTED: Final = -32097
_LOST: Final = -32098
_AMBIGUOUS: Final = frozenset({_LOST, mcp_types.CONNECTION_CLOSED, mcp_types.REQUEST_TIMEOUT})

logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it writes what servers say into the log

_GUARD = Path(__file__).with_name("guard.py")

Show = Callable[[str], Awaitable[None]]


class Answer(NamedTuple):
    """What a call came to.

    Fields:
        kind: `result`; `refused` (the server says it did not); `unsent`; `lost` or `late`: nobody knows;
            `garbled`: it answered, and what it says makes no sense.
    """

    kind: Literal["result", "refused", "unsent", "lost", "late", "garbled"]
    text: str = ""
    result: mcp_types.CallToolResult | None = None


class Session:
    """An open connection to a server. `news` is set when it closed, or when its tools may have changed."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self.news = asyncio.Event()
        self.closed = False

    def open(self, client: Client) -> None:
        """It is connected."""
        self._client = client

    @property
    def client(self) -> Client:
        """The SDK's own."""
        if self._client is None:
            raise RuntimeError("the session is not open yet")
        return self._client

    def close(self) -> None:
        """Note that it is of no use any more."""
        self.closed = True
        self.news.set()

    async def tools(self) -> list[Listed]:
        """All tools that the server lists, at most 500."""
        found: dict[str, Listed] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            for tool in page.tools:
                found.setdefault(tool.name, _listed(tool))
            cursor = page.next_cursor
            if cursor is None or len(found) >= MAX_TOOLS:
                break
        return list(found.values())[:MAX_TOOLS]

    async def watch(self) -> None:
        """Tell by `news` when the server says that its tools changed. Returns if it cannot say so."""
        try:
            async with self.client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self.news.set()
        except (ListenNotSupportedError, TimeoutError):
            return  # one of 2025 sends a notification, which is heard anyway; others are polled
        except (MCPError, SubscriptionLost) as error:
            if isinstance(error, SubscriptionLost) or error.code in _AMBIGUOUS | {_NOT_STARTED}:
                self.close()

    async def call(
        self, tool: str, arguments: Mapping[str, Any], call_id: str, *, timeout_s: float, show: Show
    ) -> Answer:
        """One call; the server is told when it is cancelled, or takes longer than `timeout_s`."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            await show(f"{message} ({amount})\n" if message else f"{amount}\n")

        if self.closed:
            return Answer("unsent", "its connection is closed")
        try:
            async with asyncio.timeout(timeout_s):
                result = await self.client.call_tool(
                    tool, dict(arguments), progress_callback=on_progress, meta=_meta(call_id)
                )
        except TimeoutError:
            return Answer("late", f"no answer within {timeout_s:g} s")
        except MCPError as error:
            return self._failed(error)
        except (pydantic.ValidationError, RuntimeError) as error:
            return Answer("garbled", f"its answer makes no sense: {str(error)[:500]}")
        return Answer("result", result=result)

    def _failed(self, error: MCPError) -> Answer:
        if error.code == _NOT_STARTED:
            return Answer("unsent", error.message)
        if error.code in _AMBIGUOUS:
            if error.code == mcp_types.CONNECTION_CLOSED:
                self.close()
            return Answer("lost", error.message)
        if error.code == mcp_types.INVALID_REQUEST and error.message == "Session terminated":
            self.close()  # it was started again and knows nothing of us, nor of this call
            return Answer("unsent", "its session was over")
        return Answer("refused", error.message)


def _meta(call_id: str) -> Any:
    """For servers that want to know a call again: ours is not sent twice unless it may be."""
    return {"fairlead/callId": call_id}


def _listed(tool: mcp_types.Tool) -> Listed:
    hints = tool.annotations
    return Listed(
        name=tool.name,
        description=tool.description or tool.title or "",
        schema=tool.input_schema,
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
        closed_world=bool(hints and hints.open_world_hint is False),
    )


@contextlib.asynccontextmanager
async def open_session(
    server: McpServer, env: dict[str, str], headers: dict[str, str], log: Path
) -> AsyncIterator[Session]:
    """Connect, and part at the end; a server of our own is ended then.

    Args:
        log: where its standard error goes.
    """
    session = Session()
    transport = _http(server, headers) if server.url else _stdio(server, env, log, session.close)

    async def on_message(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            session.news.set()

    client = Client(
        transport,
        read_timeout_seconds=None,
        message_handler=on_message,
        client_info=mcp_types.Implementation(name="fairlead", version=VERSION),
        cache=None,
    )
    async with client:
        session.open(client)
        try:
            yield session
        finally:
            session.close()


# -- a command -----------------------------------------------------------------


@contextlib.asynccontextmanager
async def _stdio(
    server: McpServer, env: dict[str, str], log: Path, on_end: Callable[[], None]
) -> AsyncIterator[Any]:
    """The SDK's own transport, under a guard, and with the end of the server told at once."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-IS", str(_GUARD), str(os.getpid()), server.command, *server.args],
        env=env,
        cwd=server.cwd or None,
        encoding_error_handler="replace",
    )
    with _opened(log) as errors:
        async with (
            stdio_client(parameters, errlog=errors) as (read, write),
            anyio.create_task_group() as tasks,
        ):
            send, receive = anyio.create_memory_object_stream[Any](0)

            async def pass_on() -> None:
                async with send:
                    with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                        async for message in read:
                            await send.send(message)
                on_end()

            tasks.start_soon(pass_on)
            try:
                yield receive, write
            finally:
                tasks.cancel_scope.cancel()
                receive.close()


def _opened(log: Path) -> TextIO:
    """The log of a server's standard error; it begins anew once it is over 1 MiB."""
    small = not log.exists() or log.stat().st_size < MAX_LOG_BYTES
    return cast(TextIO, log.open("a" if small else "w", encoding="utf-8"))


# -- a URL ---------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _http(server: McpServer, headers: dict[str, str]) -> AsyncIterator[Any]:
    timeout = httpx2.Timeout(REQUEST_S, read=None)  # calls have limits of their own
    headers = {**headers, "Accept-Encoding": "identity"}  # what is packed could grow without end
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_Telling()) as http,
        streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_EVENT_BYTES) as streams,
    ):
        yield streams


class _Telling(httpx2.AsyncBaseTransport):
    """Says of each request that failed whether it can have reached the server.

    The SDK would end the whole connection, and all calls on it, for one request that failed.
    """

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _failure(request, _NOT_STARTED, f"cannot connect: {error}")
        except httpx2.TransportError as error:
            return _failure(request, _LOST, f"the connection broke: {error!r}")
        json = response.headers.get("content-type", "").startswith("application/json")
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _failure(request, _LOST, "its answer is packed, which was not asked for")
        if response.status_code in (502, 503, 504) and not json:
            await response.aclose()
            return _failure(request, _LOST, f"a gateway answered with status {response.status_code}")
        if response.status_code in (401, 403, 429) and not json:
            await response.aclose()
            return _failure(request, _NOT_STARTED, f"refused with status {response.status_code}")
        if json and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Capped(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Capped(httpx2.AsyncByteStream):
    """A body of at most 32 MiB."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes = 0
        async for chunk in self._inner:
            size_bytes += len(chunk)
            if size_bytes > MAX_BODY_BYTES:
                raise httpx2.ReadError(f"body: at most {MAX_BODY_BYTES} bytes, got more")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _failure(request: httpx2.Request, code: int, text: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": text}}
    return httpx2.Response(
        503,
        headers={"content-type": "application/json"},
        content=msgspec.json.encode(body),
        request=request,
    )
