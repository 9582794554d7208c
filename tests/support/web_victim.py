"""A web server that says what a test wants, byte for byte, and keeps what it was asked."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

Say = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


def answer(
    body: bytes | str = b"hello from the victim",
    media_type: str = "text/plain",
    *headers: str,
    status: int = 200,
) -> Say:
    """A whole answer with a length."""
    data = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} OK", f"Content-Length: {len(data)}", *headers]
    if media_type:
        lines.append(f"Content-Type: {media_type}")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"

    async def say(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(head + data)
        await writer.drain()

    return say


def redirect(location: str, status: int = 302) -> Say:
    """A redirect."""
    return answer(b"", "", f"Location: {location}", status=status)


class Victim:
    """The server. `hits`: heads of the requests that came, whole."""

    starts = "process"

    def __init__(self, say: Say) -> None:
        self.say = say
        self.hits: list[str] = []
        self.connections = 0
        self.sent_bytes = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(
            ConnectionError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError
        ):
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode("latin-1")
            self.hits.append(head)
            await self.say(head.split(" ", 2)[1], writer)
        writer.close()
        self._tasks.discard(task)

    async def end(self) -> None:
        """Cut off whoever is still there."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)  # asyncio has told of what failed

    def paths(self) -> list[str]:
        return [head.split(" ", 2)[1] for head in self.hits]


@contextlib.asynccontextmanager
async def victim(say: Say | None = None, host: str = "127.0.0.1", **server: object) -> AsyncIterator[Victim]:
    """A server on a free port of `host`."""
    made = Victim(say or answer())
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.port = listener.getsockname()[1]
    serving = await asyncio.start_server(made._serve, sock=listener, **server)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        serving.close()
        await made.end()
