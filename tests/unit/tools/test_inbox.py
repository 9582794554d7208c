"""Files that messages name land in the workspace: complete or not at all, and nowhere else."""

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
    assert (tmp_path / ".fairlead/.gitignore").read_text() == "*\n"


def test_a_file_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    store_part(tmp_path, part(0, 10))
    file = tmp_path / ".fairlead/inbox/e1/input.txt"
    file.write_bytes(b"9876543210")  # by the agent
    assert store_part(tmp_path, part(0, 4)) == 10
    assert file.read_bytes() == b"9876543210"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "n" * 200])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"inbox\.name"):
        store_part(tmp_path, part(0, 10, name=name))
    with pytest.raises(InvalidInputError, match=r"inbox\.entry"):
        store_part(tmp_path, part(0, 10, entry=name))


def test_a_link_in_the_workspace_leads_nowhere_else(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (workspace / ".fairlead").symlink_to(outside)
    with pytest.raises(InvalidInputError):
        store_part(workspace, part(0, 10))
    assert list(outside.iterdir()) == []
