"""A loopback port forwarded to a unix socket: the only way out of a container without a network."""

from __future__ import annotations

import os
import socket

from fairlead_tools.runner.confinement.user import UnprivilegedUser

VARIABLE = "FAIRLEAD_FORWARD"  # `<port>=<path of the socket>`

_NOBODY = UnprivilegedUser(65534, 65534)
_CHUNK_BYTES = 64 * 1024
_PATIENCE_S = 5.0  # with who listens there, and may be about to start
_PAUSE_S = 0.05


def start(setting: str) -> None:
    """Start a detached forwarding process: no child of the runner, and out of reach of commands."""
    port, _, path = setting.partition("=")
    # Before the fork: connections from here on are queued, never refused.
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    pid = os.fork()
    if pid:
        listener.close()
        os.waitpid(pid, 0)
        return
    try:
        if os.fork() == 0:
            os.setsid()
            _NOBODY.become()
            _serve(listener, path)
    finally:
        os._exit(0)


def _serve(listener: socket.socket, path: str) -> None:
    import asyncio  # only here: the runner forks faster without it

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                data = await reader.read(_CHUNK_BYTES)
                if not data:
                    break
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            writer.close()

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        left = int(_PATIENCE_S / _PAUSE_S)
        while True:
            try:
                return await asyncio.open_unix_connection(path)
            except OSError:
                if not left:
                    raise
            left -= 1
            await asyncio.sleep(_PAUSE_S)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs = await connect()
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        try:
            await asyncio.gather(copy(reader, theirs[1]), copy(theirs[0], writer))
        finally:
            theirs[1].close()
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(forward, sock=listener)
        async with server:
            await server.serve_forever()

    asyncio.run(run())
