"""Real runner processes in temporary directories."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead_tools.runner.confinement.workspace_root import Root
from fairlead_tools.runner.plan import run_tool
from fairlead_tools.sandboxes.pack import pack_runner
from tests.support.processes import is_alive
from tests.support.waiting import WAIT_S, eventually

# Seconds to sleep for, as no other test run at the same time does: its processes can be told by it.
LONG = f"300.{os.getpid()}"


def pids_of(*words: str) -> list[int]:
    """Processes that have these words beside each other in their command line."""
    wanted = "\0".join(words).encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if wanted in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


class Client:
    """Speaks the protocol, blocking, with every wait bounded."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def send(self, **frame: object) -> None:
        self._stream.write(json.dumps(frame).encode() + b"\n")
        self._stream.flush()

    def receive(self) -> dict[str, Any]:
        line = self._stream.readline()
        if not line:
            raise EOFError("the runner closed the connection")
        frame = json.loads(line)
        assert isinstance(frame, dict)
        return frame

    def until(self, kind: str) -> dict[str, Any]:
        while True:
            frame = self.receive()
            if frame["type"] == kind:
                return frame
            if frame["type"] == "error":
                raise AssertionError(f"waiting for {kind}: {frame}")

    def begin(self, call_id: str, tool: str, timeout_s: float = 60.0, **arguments: object) -> None:
        """Send a call; `LONG` in a command stands for a number of seconds that tells it from all others."""
        if isinstance(command := arguments.get("command"), str):
            arguments["command"] = command.replace("LONG", LONG)
        self.send(op="call", call_id=call_id, tool=tool, arguments=arguments, timeout_s=timeout_s)

    def call(self, call_id: str, tool: str, timeout_s: float = 60.0, **arguments: object) -> dict[str, Any]:
        self.begin(call_id, tool, timeout_s, **arguments)
        return self.outcome()

    def outcome(self) -> dict[str, Any]:
        outcome = self.until("result")["outcome"]
        assert isinstance(outcome, dict)
        return outcome


class Runner:
    """One state directory, its workspace, and whichever runner serves it.

    With a `restriction` its guards fork their commands, which bind themselves; without, they spawn them.
    """

    starts = "process"

    def __init__(self, directory: Path, archive: Path, restriction: str = "") -> None:
        self.archive = archive
        self.restriction = restriction
        self.state = directory / "state"
        self.workspace = directory / "workspace"
        self.workspace.mkdir()
        self.sockets: list[socket.socket] = []
        self.env = {"PATH": os.environ["PATH"], "HOME": str(directory), "SECRET": "do-not-tell"}

    def command(self, mode: str, idle_s: float = 60.0) -> list[str]:
        python = [sys.executable, "-I", "-S", str(self.archive)]
        return [*python, mode, str(self.state), str(self.workspace), str(idle_s), "", self.restriction]

    def serve(self, idle_s: float = 60.0) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.command("serve", idle_s), env=self.env, capture_output=True, timeout=WAIT_S, check=False
        )

    def connect(self) -> Client:
        sock = socket.socket(socket.AF_UNIX)
        self.sockets.append(sock)
        sock.settimeout(WAIT_S)
        directory = os.open(self.state, os.O_PATH)
        sock.connect(f"/proc/self/fd/{directory}/sock")
        os.close(directory)
        client = Client(sock.makefile("rwb"))
        client.send(op="hello", version=1)
        assert client.receive()["type"] == "hello"
        return client

    def start(self, idle_s: float = 60.0) -> Client:
        """As executors do it: a child that a killed runner just forked may hold its lock and its socket."""

        def served() -> Client | None:
            done = self.serve(idle_s)
            assert done.returncode == 0, done.stderr
            try:
                return self.connect()
            except ConnectionRefusedError:
                return None

        client: Client = eventually(served, "a runner listens")
        return client

    @property
    def pid(self) -> int:
        return int((self.state / "lock").read_text())

    def kill(self, number: int = signal.SIGKILL) -> None:
        pid = self.pid
        os.kill(pid, number)
        eventually(lambda: not is_alive(pid), "the runner is dead")

    def log(self) -> str:
        return (self.state / "log").read_text()

    def wait_for(self, name: str) -> str:
        """The content of a file in the workspace, once someone wrote it."""
        path = self.workspace / name
        eventually(lambda: path.exists() and path.read_text(), f"{name} is written")
        return path.read_text()

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(self.pid, signal.SIGKILL)


def children_of(runner: Runner, count: int) -> list[int]:
    def found() -> list[int]:
        return [pid for pid in pids_of(str(runner.state)) if pid != runner.pid]

    eventually(lambda: len(found()) == count, f"{count} children wait")
    return found()


class Workspace:
    """A folder, and the tools in this very process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root = Root(str(path))

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def run(self, tool: str, **arguments: object) -> dict[str, Any]:
        return run_tool({"tool": tool, "arguments": arguments}, self.root)

    def run_outside(self, tool: str, **arguments: object) -> dict[str, Any]:
        """As for a call that was judged as a command."""
        return run_tool({"tool": tool, "arguments": arguments, "outside": True}, self.root)

    def run_in_session(self, tool: str, **arguments: object) -> dict[str, Any]:
        """As by a session that has seen no file."""
        return run_tool({"tool": tool, "arguments": arguments, "seen": {}}, self.root)

    def says(self, tool: str, **arguments: object) -> str:
        text = self.run(tool, **arguments)["content"][0]["text"]
        assert isinstance(text, str)
        return text


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack_runner(tmp_path_factory.mktemp("archive"))


@pytest.fixture
def runner(tmp_path: Path, archive: Path) -> Iterator[Runner]:
    made = Runner(tmp_path, archive)
    yield made
    made.close()


@pytest.fixture
def client(runner: Runner) -> Client:
    return runner.start()
