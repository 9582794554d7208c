"""Runs a program of this package in a short-lived process, with an empty environment and an end."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

MEMORY_BYTES = 1 << 30
CPU_S = 10
WALL_S = 20.0
REPLY_BYTES = 16 << 20
_AT_ONCE = 2


class WorkerError(Exception):
    """It gave no reply; the text says why."""


class WebWorker:
    """Starts a process for each request, at most two at a time.

    Args:
        program: path of the program, which imports nothing of Fairlead.
    """

    def __init__(
        self, program: Path, *, wall_s: float = WALL_S, cpu_s: int = CPU_S, memory_bytes: int = MEMORY_BYTES
    ) -> None:
        self._program = program
        self._wall_s = wall_s
        self._limits = {"memory_bytes": memory_bytes, "cpu_s": cpu_s, "reply_bytes": REPLY_BYTES}
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def ask(self, request: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """The reply. Files, not pipes, carry both: nothing can fill up, and no other child keeps them open.

        Raises:
            WorkerError: it was killed, said nothing, or took too long.
        """
        async with self._free:
            with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as reply:
                head = json.dumps({**request, "limits": self._limits}).encode()
                await asyncio.to_thread(_write, given, head + b"\n" + body)
                status = await self._run(given, reply)
                data = await asyncio.to_thread(_read, reply)
        with contextlib.suppress(ValueError):
            decoded = json.loads(data)
            if isinstance(decoded, dict):
                return decoded
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            raise WorkerError(f"it needs more than {self._limits['cpu_s']} s of processor time")
        raise WorkerError(f"its parser ended with status {status}")

    async def _run(self, given: IO[bytes], reply: IO[bytes]) -> int:
        # Takes a millisecond. In a thread, a call that is cancelled could lose sight of it.
        process = subprocess.Popen(  # noqa: ASYNC220
            [sys.executable, "-I", "-X", "utf8", str(self._program)],
            stdin=given,
            stdout=reply,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            cwd="/",
            start_new_session=True,
        )
        try:
            return await asyncio.to_thread(process.wait, self._wall_s)
        except subprocess.TimeoutExpired as error:
            raise WorkerError(f"it took longer than {self._wall_s:g} s") from error
        finally:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)


def _write(file: IO[bytes], data: bytes) -> None:
    file.write(data)
    file.flush()
    file.seek(0)


def _read(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(REPLY_BYTES)
