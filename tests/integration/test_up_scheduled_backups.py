"""The program that makes a scheduled backup is killed: the next one makes it, and nothing is left over."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.waiting import eventually

KILLED_AFTER_S = (0.0, 0.02, 0.1)  # of the first byte of the file


@pytest.fixture
def up(tmp_path: Path) -> Iterator[FairleadUp]:
    environ = {"FAIRLEAD_BACKUP_LOOK_S": "3600"}  # the test's own programs look
    with FairleadUp(tmp_path / "home", sets=["models.default=demo"], environ=environ) as made:
        yield made


def look(up: FairleadUp) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "fairlead.main", "backup", "--if-due"]
    environ = {**os.environ, "FAIRLEAD_HOME": str(up.home)}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def begun_or_ended(program: subprocess.Popen[str], folder: Path) -> bool:
    return program.poll() is not None or (folder.exists() and any(folder.iterdir()))


def test_a_killed_backup_is_made_by_the_next_program_and_leaves_nothing(up: FairleadUp) -> None:
    for number in range(3):
        session = up.session(id=f"s{number}")
        up.prompt(session, f"hello {number} " + "x" * 200_000)
        up.wait_idle(session)
    assert up.cli("config", "set", "backup.schedule", "15m").returncode == 0
    folder = up.home / "backups"
    killed = 0
    for after_s in KILLED_AFTER_S:
        with look(up) as program:
            eventually(partial(begun_or_ended, program, folder), "it writes, or has nothing to do")
            time.sleep(after_s)
            killed += program.poll() is None
            program.kill()
    assert killed, "one of them was at work"
    with look(up) as program:
        out, _ = program.communicate(timeout=60)
    assert program.returncode == 0, out
    files = [path.name for path in folder.iterdir()]
    assert [name for name in files if name.endswith(".tar")] == files, files
    assert len(files) in (1, 2)  # a quarter of an hour may have ended meanwhile
    for name in files:
        assert up.cli("backup", "--verify", str(folder / name)).returncode == 0
