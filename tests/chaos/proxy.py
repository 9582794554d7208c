"""A TCP proxy before NATS that understands the protocol well enough to lose only acknowledgements.

It runs in a process of its own (`python -m tests.chaos.proxy --port N --target N`) and takes one command
a line on its standard input, answering each with one line of JSON:

    status                   connections by client name, and the counters
    drop <seconds>           swallow publish acknowledgements on their way to the clients
    delay <seconds> <ms>     hold everything back for so long, both ways
    silence <seconds>        pass nothing on, but keep the connections open
    cut                      reset all connections
"""

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.ports import free_port

_MARK = b'{"stream":"'  # how every publish acknowledgement of JetStream begins


def frames(buffer: bytearray) -> list[bytes]:
    """Takes the whole protocol messages of a server off the front of `buffer`."""
    found = []
    while (end := buffer.find(b"\r\n")) >= 0:
        size = end + 2
        if bytes(buffer[:4]).upper() in (b"MSG ", b"HMSG"):
            size += int(buffer[:end].rsplit(b" ", 1)[1]) + 2
        if len(buffer) < size:
            break
        found.append(bytes(buffer[:size]))
        del buffer[:size]
    return found


def is_acknowledgement(frame: bytes) -> bool:
    """Whether the frame tells a publisher that its message is stored, or refused."""
    head, _, body = frame.partition(b"\r\n")
    if head[:4].upper() == b"HMSG":
        body = body[int(head.split()[-2]) :]
    return head[:4].upper() in (b"MSG ", b"HMSG") and body.startswith(_MARK)


class Proxy:
    """All connections of one listener."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.counts: Counter[str] = Counter()
        self._until = {"drop": 0.0, "delay": 0.0, "silence": 0.0}
        self._delay_s = 0.0

    async def serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            to_client.close()
            return
        self._writers |= {to_client, to_server}
        self.counts["connections"] += 1
        ways = [
            asyncio.create_task(self._upstream(client, to_server)),
            asyncio.create_task(self._downstream(server, to_client)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for writer in (to_client, to_server):
            self._writers.discard(writer)
            writer.close()

    async def _upstream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 18):
                await self._hold()
                writer.write(data)
                await writer.drain()

    async def _downstream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 18):
                buffer += data
                whole = frames(buffer)
                await self._hold()
                if self._on("drop"):
                    kept = [frame for frame in whole if not is_acknowledgement(frame)]
                    self.counts["dropped"] += len(whole) - len(kept)
                    whole = kept
                writer.write(b"".join(whole))
                await writer.drain()

    async def _hold(self) -> None:
        while self._on("silence"):
            self.counts["silenced"] += 1
            await asyncio.sleep(0.02)
        if self._on("delay"):
            self.counts["delayed"] += 1
            await asyncio.sleep(self._delay_s)

    def _on(self, name: str) -> bool:
        return time.monotonic() < self._until[name]

    def command(self, line: str) -> dict[str, Any]:
        """Obey one command; the counters after it."""
        word, *values = line.split()
        if word == "cut":
            self.counts["cut"] += len(self._writers) // 2
            for writer in list(self._writers):
                raw = writer.get_extra_info("socket")
                with contextlib.suppress(OSError):  # reset, not a polite end
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
        elif word in self._until:
            self._until[word] = time.monotonic() + float(values[0])
            self._delay_s = float(values[1]) / 1000 if len(values) > 1 else self._delay_s
        return {**self.counts, "open": len(self._writers) // 2}


async def _serve(port: int, target: int) -> None:
    proxy = Proxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", port)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    print(json.dumps({"ready": port}), flush=True)
    while line := await commands.readline():  # ends with its parent
        print(json.dumps(proxy.command(line.decode())), flush=True)
    server.close()


class ProxyProcess:
    """The proxy as a process of its own; use as a context manager."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def __enter__(self) -> "ProxyProcess":
        words = ["-m", "tests.chaos.proxy", "--port", str(self.port), "--target", str(self._target)]
        self._process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate(timeout=5)

    def tell(self, command: str) -> dict[str, Any]:
        """One command; the counters after it."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run(_serve(arguments.port, arguments.target))


if __name__ == "__main__":
    main()
