"""A scheduler as a process of its own, to be killed, stopped, and given a wrong clock."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
LEASE_S = 1.0


class SchedulerProcess:
    """One scheduler; `start` again after `kill`.

    Args:
        clock: as libfaketime takes it (`+3600s`): the wall clock of this process alone.
        environ: more of it.
    """

    starts = "process"

    def __init__(
        self,
        url: str,
        folder: Path,
        name: str,
        settings: dict[str, object],
        *,
        clock: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        self._environment = {
            "PATH": os.environ["PATH"],
            "FAIRLEAD_NATS_URL": url,
            "FAIRLEAD_WORKER": name,
            "FAIRLEAD_OVERRIDES": msgspec.json.encode(settings).decode(),
            "FAIRLEAD_SCHEDULER_LEASE_S": str(LEASE_S),
        }
        if clock:
            self._environment |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME": clock,
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        self._environment |= environ or {}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "SchedulerProcess":
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fairlead_scheduler.main"],
                env=self._environment,
                stdout=log,
                stderr=log,
            )
        return self

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, signum: signal.Signals) -> None:
        if self._process is not None and self.alive:
            self._process.send_signal(signum)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)

    def stop(self) -> None:
        """SIGTERM, and what it left behind as the exit status does not matter."""
        if self._process is None or not self.alive:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.kill()

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""
