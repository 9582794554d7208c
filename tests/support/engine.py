"""A Docker engine of a test's own, which it may kill and restart without hurting anybody else's."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import docker
import requests
from docker.errors import DockerException

from tests.support.containers import PLAIN_IMAGE, api

WAIT_S = 60.0


def missing() -> str:
    """Why no engine can be started here; empty when one can."""
    if os.geteuid():
        return "an engine of one's own needs root"
    absent = [name for name in ("dockerd", "containerd") if not shutil.which(name)]
    return f"no {absent[0]} on PATH" if absent else ""


class Engine:
    """A dockerd with folders and a socket of its own, no bridge, and the plain image.

    Its containerd is a process beside it, as distributions install it, and is never killed.

    Args:
        options: further words for dockerd.
    """

    starts = "docker"

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.url = f"unix://{folder}/engine.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._containerd: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        words = ["--root", f"{self.folder}/containerd", "--state", f"{self.folder}/state"]
        self._containerd = self._spawn("containerd", *words, "--address", f"{self.folder}/containerd.sock")
        self.start()
        self.client().load_image(api().get_image(PLAIN_IMAGE))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()
        for each in self.client().containers(all=True):
            with contextlib.suppress(DockerException):
                self.client().remove_container(each["Id"], force=True, v=True)
        self.stop()
        assert self._containerd is not None
        self._containerd.terminate()
        self._containerd.wait(timeout=WAIT_S)
        for mount in Path("/proc/self/mounts").read_text().splitlines():  # a killed dockerd leaves its own
            where = mount.split()[1]
            if where.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", where], check=False, timeout=WAIT_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self) -> Any:
        """A client of this engine."""
        return docker.APIClient(base_url=self.url, version="auto", timeout=60)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        (self.folder / "pid").unlink(missing_ok=True)
        words = ["--data-root", f"{self.folder}/data", "--exec-root", f"{self.folder}/exec"]
        words += ["--pidfile", f"{self.folder}/pid", "-H", self.url, "--bridge", "none", "--iptables=false"]
        words += ["--ip-masq=false", "--ip-forward=false", "--containerd", f"{self.folder}/containerd.sock"]
        # In a network of its own: without a bridge it would remove that of the machine's engine.
        self._process = self._spawn("unshare", "--net", "dockerd", *words, *self.options)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(DockerException, requests.RequestException):
                self.client().version()
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)
        raise AssertionError(f"dockerd did not answer: {(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """kill -9 of the daemon alone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=WAIT_S)

    def stop(self) -> None:
        """The orderly end, as a restart of the daemon begins."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=WAIT_S)

    def _spawn(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
