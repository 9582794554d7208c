"""What other processes can see of one in /proc."""

import os
import subprocess
from pathlib import Path

import pytest

# Root reads everything, so what an ordinary user sees is tried as root without a single capability: both who
# looks and who is looked at.
ORDINARY = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--") if os.geteuid() == 0 else ()


def environ_of(pid: int) -> str:
    """The environment that a process was started with; services hide theirs from all but root."""
    if os.geteuid() != 0:
        pytest.skip("only root can read the environment of a service")
    return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")


def what_its_user_sees(pid: int, name: str) -> bytes:
    """What another program of the same ordinary user reads of `/proc/<pid>`; nothing where it may not."""
    command = [*ORDINARY, "cat", f"/proc/{pid}/{name}"]
    return subprocess.run(command, capture_output=True, timeout=30, check=False).stdout
