"""A runner whose journal is on a full disk: it refuses, remembers what it refused, and lives."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.outcomes import text_of
from tests.support.small_disk import SmallDisk
from tests.unit.tools.conftest import Client, Runner

LONGEST = "a" * 64


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", size_mib=8) as made:
        yield made


@pytest.fixture
def runner(disk: SmallDisk, archive: Path) -> Iterator[Runner]:
    made = Runner(disk.folder, archive)
    yield made
    made.close()


def ask_again(client: Client, call_id: str) -> dict[str, object]:
    """What an executor is told that could not deliver the first answer."""
    return client.call(call_id, "bash", command="touch ran")


def test_a_call_that_was_not_started_for_lack_of_space_stays_so_however_often_it_is_asked_for(
    runner: Runner, disk: SmallDisk
) -> None:
    client = runner.start()
    client.call("first", "bash", command="true")
    client.send(op="forget", call_id="first")
    assert client.receive()["type"] == "forgotten"  # the folder of the next call is made by now
    disk.fill()
    told = client.call("refused", "bash", command="touch ran")
    assert told["status"] == "error"
    assert text_of(told) == "The call was not started: No space left on device"
    assert ask_again(client, "refused") == told
    disk.free()
    assert ask_again(client, "refused") == told
    assert not (runner.workspace / "ran").exists()
    assert client.call("later", "bash", command="touch ran")["status"] == "ok"


def test_a_call_that_cannot_be_forgotten_for_lack_of_space_ends_no_runner(
    runner: Runner, disk: SmallDisk
) -> None:
    client = runner.start()
    told = client.call(LONGEST, "bash", command="echo said")
    disk.fill()
    for width in (200, 4):  # until the folder of tombstones would have to grow
        with contextlib.suppress(OSError):
            for number in range(2000):
                (runner.state / "gone" / f"{number:0{width}}").touch()
    client.send(op="forget", call_id=LONGEST)
    answer = client.receive()
    pid = runner.pid
    if answer["type"] == "error":  # a disk in memory has room for names
        assert "not forgotten: No space left on device" in answer["message"]
        assert client.call(LONGEST, "bash", command="touch ran") == told
    disk.free()
    client.send(op="forget", call_id=LONGEST)
    assert client.receive()["type"] == "forgotten"
    assert client.call("b", "bash", command="echo on")["status"] == "ok"
    assert runner.pid == pid
