"""Another machine that joins: a home of its own, and a network of its own where one is wanted.

host = JoinedHost(tmp_path / "garage")
host.join(up.cli("executor", "invite", "garage").stdout)
...
host.stop()
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from fairlead_common.bus.settings import BusSettings, settings_from_environment
from fairlead_common.installation.home import Home
from fairlead_remote.membership import Membership
from tests.support.fairlead_up import FAIRLEAD
from tests.support.processes import recorded_pids

_FOREIGN = ("FAIRLEAD_", "OPENAI_", "ANTHROPIC_", "NATS_")


class JoinedHost:
    """One machine. `prefix` starts its processes, as `nsenter` does in another network."""

    starts = "stack"

    def __init__(self, home: Path, *, prefix: Sequence[str] = ()) -> None:
        self.home = home
        self.workspace = home / "workspace"
        self.printed = home.parent / f"{home.name}.out"
        self.process: subprocess.Popen[bytes] | None = None
        self._prefix = list(prefix)

    @property
    def environ(self) -> dict[str, str]:
        own = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        return {**own, "FAIRLEAD_HOME": str(self.home), "NO_COLOR": "1"}

    def cli(
        self, *words: str, input_text: str = "", timeout_s: float = 40.0
    ) -> "subprocess.CompletedProcess[str]":
        """Run `fairlead <words>` over there."""
        return subprocess.run(
            [*self._prefix, *FAIRLEAD, *words],
            env=self.environ,
            input=input_text,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def join(self, ticket: str, *words: str) -> None:
        """Join, and wait until an executor is ready."""
        self._launch(["executor", "join", "-", *words], ticket)
        self.wait_printed("service_ready")

    def run(self, *words: str) -> None:
        """Start again, and wait until an executor is ready."""
        self.printed.write_bytes(b"")
        self._launch(["executor", "run", *words], "")
        self.wait_printed("service_ready")

    def _launch(self, words: list[str], line: str) -> None:
        with self.printed.open("ab") as out:
            self.process = subprocess.Popen(
                [*self._prefix, *FAIRLEAD, *words],
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(line.strip().encode() + b"\n")
        self.process.stdin.close()

    def bus_settings(self) -> BusSettings:
        """How the machine connects, once it has joined."""
        membership = Membership(Home(self.home))
        return settings_from_environment(membership.environment(membership.joined()))

    def pids(self) -> dict[str, int]:
        """Process numbers of its executors by name."""
        return recorded_pids(self.home)

    def text(self) -> str:
        return self.printed.read_text(errors="replace") if self.printed.exists() else ""

    def wait_printed(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until `text` was printed."""
        deadline = time.monotonic() + timeout_s
        while text not in self.text():
            assert time.monotonic() < deadline, f"{text!r} not within {timeout_s:g} s\n{self.text()[-3000:]}"
            assert self.process is None or self.process.poll() is None or text in self.text(), self.text()[
                -3000:
            ]
            time.sleep(0.02)

    def wait_end(self, timeout_s: float = 30.0) -> int:
        """Wait until it has ended by itself; the exit status."""
        assert self.process is not None
        return self.process.wait(timeout=timeout_s)

    def stop(self) -> None:
        """End it and all it started. Harmless when it does not run."""
        running = self.pids()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=20)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(timeout=10)
        for pid in running.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in psutil.process_iter():  # runners outlive their executor on purpose, not their test
            with contextlib.suppress(psutil.Error):
                if any(str(self.home) in word for word in process.cmdline()):
                    process.kill()
