"""A container with systemd as process 1, in which this very checkout can be run as a service."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import pytest

ROOT = Path(__file__).resolve().parents[3]
IMAGE = "fairlead-test-systemd"
LABEL = "fairlead.test=systemd"
RUNTIME = "/run/user/1000"
FAIRLEAD = f"{sys.executable} -m fairlead.main"


def docker(*words: str, timeout_s: float = 60.0) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "DOCKER_BUILDKIT": "1"}
    return subprocess.run(
        ["docker", *words], capture_output=True, text=True, timeout=timeout_s, check=False, env=environ
    )


class SystemdMachine:
    """One machine; `boots` says whether systemd could be started at all."""

    starts = "docker"

    def __init__(self) -> None:
        self.name = f"fairlead-systemd-{os.getpid()}"

    def __enter__(self) -> "SystemdMachine":
        base = Path(sys.base_prefix)
        if base == Path("/usr"):
            pytest.skip("this Python belongs to the system: a container cannot borrow it")
        built = docker("build", "-q", "-t", IMAGE, str(Path(__file__).parent), timeout_s=110)
        if built.returncode:
            pytest.skip(f"the image with systemd cannot be built: {built.stderr[-200:]}")
        made = docker(
            "run", "--detach", "--name", self.name, "--label", LABEL, "--network", "none",
            "--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined", "--cgroupns", "private",
            "--tmpfs", "/run:exec", "--tmpfs", "/run/lock", "--env", "container=docker",
            "--volume", f"{ROOT}:{ROOT}:ro", "--volume", f"{base}:{base}:ro", IMAGE,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        try:
            self._boot()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _boot(self) -> None:
        deadline = time.monotonic() + 90
        while self.root("systemctl is-system-running").stdout.strip() not in ("running", "degraded"):
            if time.monotonic() > deadline:
                pytest.skip(
                    f"systemd does not start in a container here: {docker('logs', self.name).stdout[-200:]}"
                )
            time.sleep(0.2)
        assert self.root("loginctl enable-linger ada").returncode == 0
        self.wait("systemctl --user is-active default.target", 90)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        docker("rm", "--force", "--volumes", self.name)

    def root(self, script: str, timeout_s: float = 60.0) -> "subprocess.CompletedProcess[str]":
        """Run a script of the shell as root."""
        return docker("exec", self.name, "bash", "-c", script, timeout_s=timeout_s)

    def ada(self, script: str, timeout_s: float = 150.0) -> "subprocess.CompletedProcess[str]":
        """Run a script of the shell as the ordinary user; `fairlead` is this checkout's."""
        head = f'cd; export HOME=/home/ada XDG_RUNTIME_DIR={RUNTIME}; fairlead() {{ {FAIRLEAD} "$@"; }};'
        return docker(
            "exec", "--user", "ada", self.name, "bash", "-c", f"{head} {script}", timeout_s=timeout_s
        )

    def well(self, script: str, timeout_s: float = 90.0) -> str:
        """What a script that must work printed."""
        done = self.ada(script, timeout_s)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}\n{self.journal()}"
        return done.stdout

    def wait(self, script: str, timeout_s: float = 40.0) -> str:
        """Wait until a script works, and what it printed."""
        deadline = time.monotonic() + timeout_s
        while (done := self.ada(script)).returncode:
            assert time.monotonic() < deadline, f"{script}\n{done.stdout}\n{done.stderr}\n{self.journal()}"
            time.sleep(0.2)
        return done.stdout

    def journal(self) -> str:
        """The last lines of the service."""
        return self.ada("journalctl --user -u fairlead -n 40 --no-pager").stdout
