"""What an HTTP server that is no MCP server, or a hostile one, does to an executor: nothing."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from fairlead_common.config import McpServer
from fairlead_tools.mcp_servers.logins import LoginFile
from fairlead_tools.mcp_servers.server import McpServerConnection, McpUnreachableError

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Hostile:
    """Answers every request with the same bytes, and counts what it could write."""

    def __init__(self) -> None:
        self.answer: Answer = self.nothing
        self.sent_bytes = 0
        self.requests = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readline():
                while (await reader.readline()).strip():
                    pass
                self.requests += 1
                await self.answer(writer)
                break
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.sent_bytes += len(data)

    async def nothing(self, writer: asyncio.StreamWriter) -> None:
        """Closes the connection."""

    async def for_ever(self, writer: asyncio.StreamWriter) -> None:
        await self.write(writer, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
        while self.sent_bytes < 1 << 30:
            await self.write(writer, b"0," * (1 << 19))

    async def packed(self, writer: asyncio.StreamWriter) -> None:
        body = gzip.compress(b"[" + b" " * (64 << 20) + b"]")
        head = f"Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}"
        await self.write(writer, f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body)

    async def page(self, writer: asyncio.StreamWriter) -> None:
        await self.write(writer, b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi")

    async def elsewhere(self, writer: asyncio.StreamWriter) -> None:
        head = b"Location: http://169.254.169.254/latest\r\nContent-Length: 0"
        await self.write(writer, b"HTTP/1.1 307 Temporary Redirect\r\n" + head + b"\r\n\r\n")


@pytest.fixture
async def hostile() -> AsyncIterator[Hostile]:
    made = Hostile()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    yield made
    server.close()


async def show(_: str) -> None:
    """Progress that no one sees."""


@pytest.mark.parametrize("kind", ["nothing", "for_ever", "packed", "page", "elsewhere"])
async def test_a_hostile_answer_is_an_unreachable_server_and_costs_little(
    hostile: Hostile, tmp_path: Path, kind: str
) -> None:
    hostile.answer = getattr(hostile, kind)
    server = McpServerConnection("x", McpServer(url=hostile.url), tmp_path, cast("LoginFile", None))
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        with pytest.raises(McpUnreachableError) as error:
            await server.call("tool", arguments(), "c1", timeout_s=30.0, show=show)
        running.cancel()
    assert str(error.value)
    assert "no connection within" not in str(error.value)
    assert 1 <= hostile.requests <= 10
    assert hostile.sent_bytes < 256 << 20


def arguments() -> dict[str, Any]:
    return {"a": 1}
