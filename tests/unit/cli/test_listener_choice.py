"""Where other machines come in, when another program has the port."""

import io
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.commands.up import _choose_listener
from fairlead_common.installation.errors import CommandError
from fairlead_common.installation.home import Home
from fairlead_node.supervisor.output import Console
from fairlead_remote.listener import RemoteListener


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that another program listens at."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield f"127.0.0.1:{other.getsockname()[1]}"


@pytest.mark.process
def test_a_port_that_is_taken_is_refused_when_it_is_asked_for(tmp_path: Path, taken: str) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    with pytest.raises(CommandError, match="taken by another program"):
        _choose_listener(home, taken, False, Console(io.StringIO(), colour=False))


@pytest.mark.process
def test_an_earlier_choice_whose_port_is_taken_is_said_and_keeps_nothing_from_starting(
    tmp_path: Path, taken: str
) -> None:
    home = Home(tmp_path / "home")
    home.prepare()
    RemoteListener(home).choose(taken)
    said = io.StringIO()
    _choose_listener(home, None, False, Console(said, colour=False))
    assert "no other machine can join" in said.getvalue()
