"""Which commands a container would take with it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_tools.colocated_commands import running_here


@pytest.fixture
def call() -> Iterator[str]:
    """The id of a call whose command runs."""
    name = "own" + os.urandom(6).hex()
    with subprocess.Popen(
        ["sleep", "50"], env={"PATH": os.environ["PATH"], "FAIRLEAD_CALL_ID": name}
    ) as command:
        yield name
        command.kill()


def test_a_command_counts_until_its_end_is_written_down(call: str, tmp_path: Path) -> None:
    folder = tmp_path / "runners" / "r" / "calls" / call
    assert running_here(tmp_path) == set()
    folder.mkdir(parents=True)
    assert running_here(tmp_path) == set()
    (folder / "started").touch()
    assert running_here(tmp_path) == {call}
    (folder / "exit").touch()
    assert running_here(tmp_path) == set()


def test_a_call_of_another_container_does_not_count(tmp_path: Path) -> None:
    folder = tmp_path / "runners" / "r" / "calls" / "elsewhere"
    folder.mkdir(parents=True)
    (folder / "started").touch()
    assert running_here(tmp_path) == set()
