"""What `fairlead down` reports of runners that outlive it."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlead.commands.down import down


@pytest.mark.process
def test_runners_that_are_left_are_reported_and_sockets_of_dead_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    places = (
        "tools/h/runners/a",
        "tools/h/runners-own/b",
        "tools/h/bubblewrap/c/state",
        "tools/h/runners/dead",
    )
    sockets = []
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        sockets[-1].bind(f"{place}/sock")
        sockets[-1].listen()
    sockets.pop().close()

    def told() -> str:
        done = CliRunner().invoke(down, [])
        assert done.exit_code == 0
        return done.stderr

    assert told().endswith("; 3 runners are left: each ends 15 minutes after its last command\n")
    for each in sockets[1:]:
        each.close()
    assert told().endswith("; 1 runner is left: it ends 15 minutes after its last command\n")
    sockets[0].close()
    assert told() == f"Fairlead is not running in {tmp_path}\n"
