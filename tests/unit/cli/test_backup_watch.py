"""`fairlead backup --watch`: what the health check of a container learns of the last look."""

import time
from pathlib import Path

import pytest

from fairlead.commands import backup
from fairlead_common.installation.errors import CommandError


class _EndedError(Exception):
    """The watch was stopped."""


def test_the_reason_of_a_failed_look_is_in_the_file_until_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "problem"
    looks = iter(["the disk of /backups is full", ""])
    seen: list[str] = []

    def look(*_: object, **__: object) -> None:
        if problem := next(looks):
            raise CommandError(problem)

    def sleep(_: float) -> None:
        seen.append(file.read_text())
        if len(seen) == 2:
            raise _EndedError

    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_PROBLEM_FILE", str(file))
    monkeypatch.setattr(backup, "with_streams", look)
    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(_EndedError):
        backup.backup.main(["--watch"], standalone_mode=False)
    assert seen == ["the disk of /backups is full", ""]
    assert "the disk of /backups is full" in capsys.readouterr().err
