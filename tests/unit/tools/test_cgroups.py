"""Control groups, real ones where this machine lets us make them, and a folder that looks like version 2."""

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_tools.sandboxes import cgroups
from fairlead_tools.sandboxes.cgroups import ResourceLimits

LIMITS = ResourceLimits(memory_mb=64, pids=20, cpus=0.5)


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    name = f"fairlead-test-{secrets.token_hex(4)}"
    made = cgroups.make(name, LIMITS)
    if not made:
        pytest.skip("no control group can be made here")
    yield made
    end = time.monotonic() + 15
    while any(folder.exists() for folder in made):  # until the last process in them has ended
        assert time.monotonic() < end
        cgroups.remove(name)
        time.sleep(0.01)


def entered(groups: list[Path], command: str) -> subprocess.CompletedProcess[str]:
    words = ["/bin/sh", "-c", cgroups.ENTER, "sh", *map(str, groups), "--", "/bin/bash", "-c", command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_memory_of_all_processes_together_is_limited(groups: list[Path]) -> None:
    hog = "python3 -c \"x = b'x' * (200 << 20); print(len(x))\"; echo $?"
    assert entered(groups, hog).stdout.strip() == "137"
    assert entered(groups, "python3 -c \"x = b'x' * (8 << 20); print(len(x))\"").stdout.strip() == str(
        8 << 20
    )


def test_processes_are_limited(groups: list[Path]) -> None:
    forks = "import os, time; [os.fork() or (os.close(1), os.close(2), time.sleep(1)) for _ in range(40)]"
    done = entered(groups, f'python3 -c "{forks}"')
    assert "Resource temporarily unavailable" in done.stderr


def test_version_2_is_written_as_the_kernel_reads_it(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/user.slice/fairlead.service\n")
    root = tmp_path / "cgroup"
    parent = root / "user.slice" / "fairlead.service"
    parent.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu memory pids\n")
    (parent / "cgroup.subtree_control").write_text("memory\n")
    group = parent / "fairlead-x"
    group.mkdir()
    (group / "memory.swap.max").write_text("max\n")
    assert cgroups.make("fairlead-x", LIMITS, root, own) == [group]
    assert (parent / "cgroup.subtree_control").read_text() == "+pids +cpu"
    written = {path.name: path.read_text() for path in group.iterdir()}
    assert written == {
        "pids.max": "20",
        "memory.max": str(64 << 20),
        "memory.swap.max": "0",
        "cpu.max": "50000 100000",
    }


def test_version_2_without_rights_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("0::/\n")
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu\n")
    if os.geteuid() == 0:
        root = Path("/proc/self/nothing")
    else:
        root.chmod(0o555)
    assert cgroups.make("fairlead-x", LIMITS, root, tmp_path / "own") == []


def test_group_that_cannot_be_entered_starts_nothing(tmp_path: Path) -> None:
    done = entered([tmp_path / "missing"], "echo started")
    assert (done.returncode, done.stdout) == (125, "")
