"""When the server is closed, opened and started again, by the space that is free."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from fairlead_node.nats_server.store_guard import StoreGuard

MIB = 1 << 20


class _Found(NamedTuple):
    f_bavail: int
    f_blocks: int
    f_frsize: int = MIB


class _Fake:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free_mib = 1000
        monkeypatch.setattr(os, "statvfs", lambda _: _Found(self.free_mib, 2000))
        self.limit, self.state = folder / "limit", folder / "state"
        self.guard = StoreGuard(folder / "store", self.limit, self.state)
        self.guard.prepare()

    def look(self, free_mib: int) -> str:
        self.free_mib = free_mib
        return self.guard.look()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Fake:
    return _Fake(tmp_path, monkeypatch)


def test_a_store_is_closed_by_a_restart_and_opened_by_a_reload(fake: _Fake) -> None:
    assert fake.limit.read_text().split() == ["max_file_store:", str(2000 * MIB)]
    assert fake.look(100) == "nothing"
    assert fake.look(99) == "restart"
    assert fake.limit.read_text().split() == ["max_file_store:", "1"]
    assert fake.look(199) == "nothing"
    assert fake.look(200) == "reload"
    assert fake.limit.read_text().split() == ["max_file_store:", str(2000 * MIB)]


@pytest.mark.parametrize(("free_mib", "back_mib"), [(99, None), (99, 200)])
def test_a_change_that_could_not_be_written_is_made_at_the_next_look(
    fake: _Fake, monkeypatch: pytest.MonkeyPatch, free_mib: int, back_mib: int | None
) -> None:
    expected = "restart"
    if back_mib is not None:
        fake.look(free_mib)
        free_mib, expected = back_mib, "reload"
    before = fake.limit.read_text()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            fake.look(free_mib)
    assert fake.limit.read_text() == before
    assert fake.look(free_mib) == expected
    assert fake.limit.read_text() != before


def test_a_server_that_froze_is_started_anew_once_that_helps(fake: _Fake) -> None:
    fake.guard.hear("[ERR] Filestore [SESSIONS] Critical write error: no space left on device")
    assert fake.look(0) == "restart"  # closed, so that it refuses
    fake.guard.hear("[ERR] JetStream stream '$G > TOOLS' critical write error: no space left on device")
    assert fake.look(10) == "nothing"
    assert fake.look(1000) == "restart"  # a reload does not thaw it
    assert fake.look(1000) == "nothing"


def test_a_store_that_had_no_room_at_all_is_opened_by_a_restart(fake: _Fake) -> None:
    assert fake.look(90) == "restart"
    assert fake.look(12) == "nothing"
    assert fake.look(11) == "nothing"  # a deletion may have frozen it by now, and nothing tells
    assert fake.look(90) == "nothing"
    assert fake.look(300) == "restart"
    assert fake.look(99) == "restart"
    assert fake.look(300) == "reload"  # that was once


def test_the_gateway_is_told_of_a_disk_that_is_nearly_full(fake: _Fake) -> None:
    assert fake.state.read_text().split() == ["open", str(1000 * MIB), str(2000 * MIB)]
    fake.look(401)
    assert fake.state.read_text().split()[0] == "open"
    fake.look(400)
    assert fake.state.read_text().split()[0] == "low"
    fake.look(50)
    assert fake.state.read_text().split() == ["closed", str(50 * MIB), str(2000 * MIB)]
