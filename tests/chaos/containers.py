"""The containers of one run, and what runs in them. Executors label them with their identity."""

import functools
import shutil
import subprocess
from pathlib import Path

IMAGE = "fairlead-sandbox:latest"
COMMAND = "ledger.py"


class Containers:
    """Those of the executors below one home."""

    starts = "docker"

    def __init__(self, home: Path) -> None:
        self._home = home

    def running(self) -> list[str]:
        """Their ids, the ones with commands under way first."""
        found = self._listed("ps", "-q", "--no-trunc")
        return sorted(found, key=lambda each: -len(self.commands(each)))

    def commands(self, container: str) -> list[str]:
        """The commands of the chaos runs that a container has under way."""
        lines = _docker("top", container, "-o", "pid,args").splitlines()[1:]
        return [line.strip() for line in lines if COMMAND in line and "bash -c" not in line]

    def kill(self, container: str) -> None:
        """kill -9 of everything in it."""
        _docker("kill", "--signal", "KILL", container)

    def left_over(self) -> list[str]:
        """Commands that still run. Containers may: they outlive their executors on purpose."""
        return [f"{each[:12]} {line}" for each in self.running() for line in self.commands(each)]

    def remove(self) -> None:
        """Remove them all."""
        found = self._listed("ps", "-aq", "--no-trunc")
        if found:
            _docker("rm", "--force", "--volumes", *found)

    def _listed(self, *words: str) -> list[str]:
        found: list[str] = []
        for path in self._home.glob("tools/*/identity"):
            label = f"label=fairlead.identity={path.read_text('ascii')}"
            found += _docker(*words, "--filter", label).split()
        return found


def _docker(*words: str) -> str:
    """What docker prints; nothing where there is none."""
    if shutil.which("docker") is None:
        return ""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout


@functools.cache
def sandboxes_here() -> tuple[str, ...]:
    """The sandboxes that can be had on this machine."""
    found = ["local"]
    if shutil.which("bwrap"):
        found.append("bubblewrap")
    if _docker("image", "inspect", "--format", "{{.Id}}", IMAGE).strip():
        found.append("docker")
    return tuple(found)
