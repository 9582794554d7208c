"""Files that messages name land in the workspace: complete or not at all, and nowhere else."""

import os
import subprocess
from pathlib import Path

import pytest

from fairlead_common.errors import InvalidInputError
from fairlead_common.protocol.messages import InboxPart
from fairlead_tools.workspaces.inbox import store_part

DATA = b"0123456789"


def part(offset: int, end: int, **fields: str) -> InboxPart:
    names = {"entry": "e1", "name": "input.txt", **fields}
    return InboxPart(**names, data=DATA[offset:end], offset=offset, size_bytes=len(DATA))


def test_a_file_has_its_name_once_all_its_parts_are_there(tmp_path: Path) -> None:
    file = tmp_path / ".fairlead/inbox/e1/input.txt"
    assert store_part(tmp_path, part(0, 4)) == 4
    assert not file.exists()
    assert store_part(tmp_path, part(0, 4)) == 4  # the answer was lost
    assert store_part(tmp_path, part(4, 10)) == 10
    assert file.read_bytes() == DATA
    assert [each.name for each in file.parent.iterdir()] == ["input.txt"]


def test_the_folder_is_kept_out_of_git_and_settings_of_the_project_are_not(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    store_part(tmp_path, part(0, 10))
    status = ["git", "-C", str(tmp_path), "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.check_output(status, text=True) == ""
    (tmp_path / ".fairlead/project.json").write_text("{}")
    assert subprocess.check_output(status, text=True) == "?? .fairlead/project.json\n"


def test_a_part_that_does_not_follow_what_is_stored_is_not_written(tmp_path: Path) -> None:
    assert store_part(tmp_path, part(4, 10)) == 0
    store_part(tmp_path, part(0, 3))
    assert store_part(tmp_path, part(4, 10)) == 3
    assert not (tmp_path / ".fairlead/inbox/e1/input.txt").exists()
    assert store_part(tmp_path, part(3, 10)) == 10
    assert (tmp_path / ".fairlead/inbox/e1/input.txt").read_bytes() == DATA


def test_a_name_in_any_script_is_kept(tmp_path: Path) -> None:
    store_part(tmp_path, part(0, 10, name="Übersicht-報告.pdf"))
    assert (tmp_path / ".fairlead/inbox/e1/Übersicht-報告.pdf").read_bytes() == DATA


def test_a_file_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    store_part(tmp_path, part(0, 10))
    file = tmp_path / ".fairlead/inbox/e1/input.txt"
    file.write_bytes(b"shorter")  # by the agent
    assert store_part(tmp_path, part(0, 4)) == 10
    assert file.read_bytes() == b"shorter"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "n" * 200])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"inbox\.name"):
        store_part(tmp_path, part(0, 10, name=name))
    with pytest.raises(InvalidInputError, match=r"inbox\.entry"):
        store_part(tmp_path, part(0, 10, entry=name))


@pytest.mark.parametrize("link", [".fairlead", ".fairlead/inbox", ".fairlead/inbox/e1"])
@pytest.mark.parametrize("target", ["outside", "workspace/src", "workspace"])
def test_a_link_in_the_workspace_leads_nowhere_else(tmp_path: Path, link: str, target: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "workspace/src").mkdir(parents=True)
    made = tmp_path / "workspace" / link
    made.parent.mkdir(parents=True, exist_ok=True)
    made.symlink_to(
        tmp_path / target if target == "outside" else os.path.relpath(tmp_path / target, made.parent)
    )
    with pytest.raises(InvalidInputError):
        store_part(tmp_path / "workspace", part(0, 10))
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_files_belong_to_the_owner_of_the_workspace(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 1234)
    store_part(tmp_path, part(0, 10))
    folder = tmp_path / ".fairlead/inbox/e1"
    assert [folder.stat().st_uid, (folder / "input.txt").stat().st_uid] == [1234, 1234]
