"""Requests over HTTP to an MCP server that say, when they fail, whether they can have reached it."""

from collections.abc import AsyncIterator
from typing import Final

import httpx2
import msgspec

MAX_BODY_BYTES: Final = 32 << 20
NOT_STARTED: Final = -32097  # in the place of an answer: the server cannot have heard of the request
LOST: Final = -32098  # it may have been heard
REFUSAL: Final = "fairlead.refusal"  # an extension of a request that must not be sent: why


class ReportingTransport(httpx2.AsyncBaseTransport):
    """Says of each request that failed whether it can have reached the server.

    The SDK would end the whole connection, and all calls on it, for one request that failed.

    Args:
        asks_for_login: a refusal is passed on to what has a token, and can get another one.
    """

    def __init__(self, *, asks_for_login: bool = False) -> None:
        self._refusals = (429,) if asks_for_login else (401, 403, 429)
        self._inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The server's answer, or one of ours in its place."""
        if why := request.extensions.get(REFUSAL):
            return _failure(request, NOT_STARTED, str(why))
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _failure(request, NOT_STARTED, f"cannot connect: {error}")
        except httpx2.TransportError as error:
            return _failure(request, LOST, f"the connection broke: {error!r}")
        json = response.headers.get("content-type", "").startswith("application/json")
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _failure(request, LOST, "its answer is compressed, which was not requested")
        if response.status_code in (502, 503, 504) and not json:
            await response.aclose()
            return _failure(request, LOST, f"a gateway answered with status {response.status_code}")
        if response.status_code in self._refusals and not json:
            await response.aclose()
            return _failure(request, NOT_STARTED, f"refused with status {response.status_code}")
        if json and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Capped(response.stream)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
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
