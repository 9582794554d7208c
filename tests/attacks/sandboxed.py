"""Real runners in a sandbox of each kind, with a workspace, and something outside that must stay there."""

import asyncio
import atexit
import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from fairlead_common.config import BubblewrapConfig
from fairlead_tools.sandboxes.bubblewrap import BubblewrapSandbox
from fairlead_tools.sandboxes.local import LocalSandbox
from fairlead_tools.sandboxes.pack import pack_runner
from fairlead_tools.sandboxes.sandbox import Place
from tests.support import boxes
from tests.support.waiting import WAIT_S

SECRET = "the secret of the host"

Outcome = dict[str, Any]


@functools.cache
def _archive() -> Path:
    """The runner, packed once: that takes longer than a test."""
    folder = Path(tempfile.mkdtemp(prefix="fairlead-archive-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pack_runner(folder)


class Sandboxed:
    """One workspace served by a runner of one kind.

    Fields:
        outside: a folder beside the workspace. work: the workspace as this machine sees it.
    """

    def __init__(
        self, directory: Path, kind: str, settings: BubblewrapConfig | None = None, access: str = "rw"
    ) -> None:
        self.kind = kind
        self.outside = directory / "outside"
        self.outside.mkdir()
        (self.outside / "secret").write_text(SECRET)
        self.work = directory / "work"
        self.work.mkdir()
        (self.work / "file").write_text("harmless\n")
        (self.work / "dir").mkdir()
        (self.work / "dir" / "file").write_text("harmless\n")
        self.private = directory / "private"
        self.private.mkdir(mode=0o700)
        archive = _archive()
        shutil.copy(archive, self.private / archive.name)
        self._settings = settings or BubblewrapConfig()
        self._place = msgspec.convert({"sandbox": kind, "workspace": str(self.work), "access": access}, Place)
        self._count = 0
        self.reaches_outside = False  # whether calls were judged as commands outside of the workspace
        self._sock = self._connect(asyncio.run(self._launch()))
        self._stream = self._sock.makefile("rwb")
        self._send(op="hello", version=1)
        self.features: dict[str, Any] = self._receive()["features"]

    @property
    def here(self) -> str:
        """The workspace as the sandbox sees it."""
        return str(self.work) if self.kind == "local" else "/workspace"

    async def _launch(self) -> Path:
        async with asyncio.TaskGroup() as tasks:
            if self.kind == "local":
                sandbox: LocalSandbox | BubblewrapSandbox = LocalSandbox(self.private, tasks)
            else:
                sandbox = BubblewrapSandbox(self.private, self.private, tasks, lambda: self._settings)
            await sandbox.channel(self._place)
            sandbox.close()
        pattern = "runners/*/sock" if self.kind == "local" else "bubblewrap/*/state/sock"
        [found] = self.private.glob(pattern)
        return found.parent

    def _connect(self, state: Path) -> socket.socket:
        directory = os.open(state, os.O_PATH)
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(WAIT_S)
        sock.connect(f"/proc/self/fd/{directory}/sock")
        os.close(directory)
        return sock

    def _send(self, **frame: object) -> None:
        self._stream.write(json.dumps(frame).encode() + b"\n")
        self._stream.flush()

    def _receive(self) -> dict[str, Any]:
        frame = json.loads(self._stream.readline())
        assert isinstance(frame, dict)
        return frame

    def run(self, tool: str, timeout_s: float = 20.0, **arguments: object) -> Outcome:
        """The outcome of a call. No outcome tells where the workspace lies, unless the call did."""
        self._count += 1
        call_id = f"call{self._count}"
        more = {"outside": True} if self.reaches_outside else {}
        self._send(op="call", call_id=call_id, tool=tool, arguments=arguments, timeout_s=timeout_s, **more)
        while True:
            frame = self._receive()
            assert frame["type"] != "error", frame
            if frame["type"] == "result" and frame["call_id"] == call_id:
                outcome: Outcome = frame["outcome"]
                if tool != "bash" and str(self.work) not in str(arguments):
                    assert str(self.work) not in str(outcome)
                return outcome

    def bash(self, command: str, timeout_s: float = 20.0) -> str:
        """What a command prints, and how it ended when that was not well."""
        outcome = self.run("bash", timeout_s, command=command)
        text: str = outcome["content"][0]["text"]
        return text

    def refused(self, tool: str, **arguments: Any) -> str:
        outcome = self.run(tool, **arguments)
        assert outcome["status"] == "error", (tool, arguments, outcome)
        text: str = outcome["content"][0]["text"]
        assert SECRET not in text
        return text

    def works(self, tool: str, **arguments: Any) -> str:
        outcome = self.run(tool, **arguments)
        assert outcome["status"] == "ok", (tool, arguments, outcome)
        text: str = outcome["content"][0]["text"]
        return text

    def untouched(self) -> bool:
        """Whether all that lies outside is as it was."""
        return os.listdir(self.outside) == ["secret"] and (self.outside / "secret").read_text() == SECRET

    def close(self) -> None:
        self._stream.close()
        self._sock.close()
        boxes.clear(self.private)
        for lock in self.private.glob("runners/*/lock"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
                os.kill(int(lock.read_text()), signal.SIGKILL)
