"""A request leaves this machine once, whatever becomes of its connection."""

import asyncio

import pytest

from fairlead_tools.web.target import parse
from fairlead_tools.web.transport import FetchError, Transport


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "POST", "PATCH"])
async def test_a_request_whose_connection_breaks_is_sent_once_and_may_have_arrived(method: str) -> None:
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head.decode().partition(" ")[0])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        transport = Transport(frozenset([("127.0.0.1", port)]))
        body = b"{}" if method in ("PUT", "POST", "PATCH") else None
        with pytest.raises(FetchError) as caught:
            await transport.request(method, parse(f"http://127.0.0.1:{port}/x"), headers={}, data=body)
    assert seen == [method]
    assert caught.value.sent


async def test_a_request_to_nobody_was_not_sent() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    transport = Transport(frozenset([("127.0.0.1", port)]))
    with pytest.raises(FetchError) as caught:
        await transport.request("PUT", parse(f"http://127.0.0.1:{port}/x"), headers={}, data=b"{}")
    assert not caught.value.sent
