"""The socket that the gateway listens on."""

import asyncio
import contextlib
import socket

import pytest

from fairlead_gateway.http.server import listen

pytestmark = pytest.mark.process


async def test_an_answer_in_two_pieces_is_not_held_back() -> None:
    """Without TCP_NODELAY the second one waits for the client's acknowledgement, which may take 40 ms."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted: socket.socket = writer.get_extra_info("socket")
        found.set_result(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with contextlib.closing(listen("127.0.0.1", 0)) as sock:
        async with await asyncio.start_server(note, sock=sock):
            _, writer = await asyncio.open_connection(*sock.getsockname())
            async with asyncio.timeout(20):
                assert await found
            writer.close()
