"""Patches over many files, and deletions."""

import os
from pathlib import Path

import pytest

from fairlead_common.policy.rules import raw_paths
from tests.unit.tools.conftest import Workspace


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    return Workspace(tmp_path / "inside")


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def tree(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def test_patch_adds_changes_moves_and_deletes(work: Workspace) -> None:
    work.file("a.py", "def f():\n    return 1\n\n\ndef g():\n    return 1\n")
    work.file("old/name.txt", "one\ntwo\nthree\n")
    work.file("gone", "x\n")
    outcome = work.run(
        "apply_patch",
        patch=patch(
            "*** Update File: a.py", "@@ def g():", "-    return 1", "+    return 2",
            "*** Add File: new/b.py", "+import os", "+", "+print(os)",
            "*** Update File: old/name.txt", "*** Move to: new/name.txt", "@@", " one", "-two", "+2",
            "*** Delete File: gone",
        ),
    )  # fmt: skip
    said = outcome["content"][0]["text"].splitlines()
    assert said == ["Patched:", "M a.py", "A new/b.py", "M old/name.txt -> new/name.txt", "D gone"]
    assert tree(work.path) == {
        "a.py": b"def f():\n    return 1\n\n\ndef g():\n    return 2\n",
        "new/b.py": b"import os\n\nprint(os)\n",
        "new/name.txt": b"one\n2\nthree\n",
    }
    assert "-    return 1\n+    return 2\n" in outcome["details"]["diff"]
    assert [each["kind"] for each in outcome["details"]["files"]] == ["update", "add", "update", "delete"]


FUZZ = {
    "spaces at the end": ("x = 1   \ny = 2\n", " x = 1", "x = 1   \ny = 3\n"),
    "other indentation": ("\tx = 1\ny = 2\n", "     x = 1", "\tx = 1\ny = 3\n"),
    "odd punctuation": (
        "x = \u201c1\u201d \u2014 2\ny = 2\n",
        ' x = "1" - 2',
        "x = \u201c1\u201d \u2014 2\ny = 3\n",
    ),
    "line ends": ("x = 1\r\ny = 2\r\n", " x = 1", "x = 1\r\ny = 3\r\n"),
}


@pytest.mark.parametrize(("before", "context", "after"), FUZZ.values(), ids=FUZZ.keys())
def test_context_may_differ_a_little_and_stays_as_it_was(
    work: Workspace, before: str, context: str, after: str
) -> None:
    path = work.file("f", before)
    work.run("apply_patch", patch=patch("*** Update File: f", "@@", context, "-y = 2", "+y = 3"))
    assert path.read_bytes().decode() == after


def test_hunks_come_one_after_the_other_and_at_the_end(work: Workspace) -> None:
    path = work.file("f", "a\nb\na\nb\na\nb\n")
    work.run(
        "apply_patch",
        patch=patch(
            "*** Update File: f", "@@", "-a", "+1", "@@", "-a", "+2", "@@", "-b", "+end", "*** End of File"
        ),
    )
    assert path.read_text() == "1\nb\n2\nb\na\nend\n"
    work.run("apply_patch", patch=patch("*** Update File: f", "@@", "+more"))
    assert path.read_text() == "1\nb\n2\nb\na\nend\nmore\n"


BROKEN = {
    "context that is not there": (["*** Update File: a", "@@", "-nowhere", "+x"], "fits nowhere"),
    "anchor that is not there": (["*** Update File: a", "@@ class X:", "-one", "+x"], "no line 'class X:'"),
    "missing file": (["*** Update File: none", "@@", "-one", "+x"], "none: No such file"),
    "missing file to delete": (["*** Delete File: none"], "none: No such file"),
    "file that is there": (["*** Add File: a", "+x"], "a: is there already"),
    "target that is there": (
        ["*** Update File: a", "*** Move to: b", "@@", "-one", "+x"],
        "b: is there already",
    ),
    "no mark": (["*** Update File: a", "@@", "one"], "must begin with a space"),
    "no action": (["*** Change File: a"], "must name a file"),
    "outside": (["*** Add File: ../outside/x", "+x"], "leads out of the workspace"),
    "outside by a link": (["*** Add File: link/x", "+x"], "leads out of the workspace"),
    "outside by a move": (["*** Update File: a", "*** Move to: ../x", "@@", "-one", "+x"], "leads out"),
    "outside file by a link": (["*** Update File: secret", "@@", "-secret", "+x"], "leads out"),
    "outside file deleted": (["*** Delete File: link/secret"], "leads out"),
    "absolute": (["*** Add File: /etc/fairlead-test", "+x"], "must be relative"),
    "git": ([], "names no file"),
}


@pytest.mark.parametrize(("lines", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_patch_that_does_not_fit_changes_nothing(work: Workspace, lines: list[str], said: str) -> None:
    work.file("a", "one\n")
    work.file("b", "two\n")
    (work.path / "link").symlink_to("../outside")
    (work.path / "secret").symlink_to("../outside/secret")
    before = tree(work.path.parent)
    whole = patch("*** Update File: b", "@@", "-two", "+2", *lines) if lines else patch()
    outcome = work.run("apply_patch", patch=whole)
    assert outcome["status"] == "error"
    assert said in outcome["content"][0]["text"]
    assert tree(work.path.parent) == before


def test_write_that_fails_in_the_middle_is_taken_back(work: Workspace) -> None:
    work.file("a", "one\n")
    work.file("z/b", "two\n")
    before = tree(work.path)
    original, calls = work.root.replace_file, []

    def failing(path: str, content: bytes) -> bool:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return original(path, content)

    work.root.replace_file = failing  # type: ignore[method-assign]
    outcome = work.run(
        "apply_patch",
        patch=patch("*** Update File: a", "@@", "-one", "+1", "*** Update File: z/b", "@@", "-two", "+2"),
    )
    assert outcome["content"][0]["text"] == "No space left on device. Nothing was changed."
    assert tree(work.path) == before
    assert calls == ["a", "z/b", "a"]


def test_unified_diff_is_a_patch_too(work: Workspace) -> None:
    work.file("src/a.c", "".join(f"line {n}\n" for n in range(1, 40)))
    work.file("b", "x\n")
    work.file("moved", "one\n")
    diff = (
        "diff --git a/src/a.c b/src/a.c\nindex 1..2 100644\n--- a/src/a.c\n+++ b/src/a.c\n"
        "@@ -10,3 +10,3 @@ somewhere\n line 12\n-line 13\n+line thirteen\n line 14\n"
        "@@ -30,2 +30,3 @@\n line 30\n+line 30 and a half\n line 31\n"
        "diff --git a/new b/new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n"
        "@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"
        "diff --git a/b b/b\ndeleted file mode 100644\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        "diff --git a/moved b/there\nsimilarity index 100%\nrename from moved\nrename to there\n"
    )
    outcome = work.run("apply_patch", patch=diff)
    assert outcome["status"] == "ok", outcome
    text = (work.path / "src/a.c").read_text()
    assert "line 12\nline thirteen\nline 14\n" in text
    assert "line 30\nline 30 and a half\nline 31\n" in text
    assert sorted(tree(work.path)) == ["new", "src/a.c", "there"]
    assert (work.path / "new").read_text() == "one\ntwo"


def test_plain_diff_finds_the_place_nearest_to_its_line(work: Workspace) -> None:
    path = work.file("f", "same\n" * 50)
    work.run("apply_patch", patch="--- f\n+++ f\n@@ -40,2 +40,2 @@\n same\n-same\n+other\n")
    assert path.read_text().splitlines().index("other") == 40


def test_text_that_is_no_patch_says_what_one_is(work: Workspace) -> None:
    said = work.says("apply_patch", patch="hello")
    assert said.startswith(
        "patch: must begin with '*** Begin Patch', or be a unified diff. Next: apply_patch"
    )
    assert "must end with" in work.says("apply_patch", patch="*** Begin Patch\n*** Add File: x\n+x")


def test_delete_takes_a_file_a_link_and_an_empty_folder(work: Workspace) -> None:
    work.file("dir/file", "x")
    (work.path / "void").mkdir()
    (work.path / "link").symlink_to("../outside")
    (work.path / "linked").symlink_to("../outside/secret")
    for path in ("dir/file", "void", "link", "linked"):
        assert work.says("delete", path=path) == f"Deleted {path}."
    assert os.listdir(work.path) == ["dir"]
    assert (work.path.parent / "outside" / "secret").exists()


def test_folder_with_something_in_it_is_deleted_only_on_request(work: Workspace) -> None:
    work.file("dir/a/b", "x")
    (work.path / "dir" / "link").symlink_to("../../outside")
    assert "set recursive" in work.says("delete", path="dir")
    assert work.says("delete", path="dir", recursive=True) == "Deleted dir: 2 files and 2 folders."
    assert (work.path.parent / "outside" / "secret").exists()


REFUSED = [".", "", "/", "dir/..", "..", "../outside", "../outside/secret", "link/secret", "missing", "./"]


@pytest.mark.parametrize("path", REFUSED)
def test_delete_is_refused(work: Workspace, path: str) -> None:
    work.file("dir/file", "x")
    (work.path / "link").symlink_to("../outside")
    before = tree(work.path.parent)
    for recursive in (False, True):
        assert work.run("delete", path=path, recursive=recursive)["status"] == "error"
    for spelled in (str(work.path), f"{work.path}/", f"{work.path}/dir/.."):
        assert work.run("delete", path=spelled, recursive=True)["status"] == "error"
    assert tree(work.path.parent) == before


SPELLED = [
    patch("*** Add File: ok", "+x", "  *** Add File: .git/hooks/x", "+x"),
    patch("*** Add File: ok", "+x", "", "  *** Delete File: .git/hooks/x"),
    patch("*** Add File: ok\t/../.git/hooks/x", "+x"),
    patch("*** Add File: ok\r/../.git/hooks/x", "+x"),
    patch("*** Update File: a", "  *** Move to: .git/hooks/x", "@@", "-one", "+x"),
    patch("*** Update File: a", "*** Move to: .git/hooks/x", "@@", "-one", "+x"),
    '--- a\n+++ "b/.git/hooks/x"\n@@ -1 +1 @@\n-one\n+x\n',
    "--- a\n+++ b/.git/hooks/x\n@@ -1 +1 @@\n-one\n+x\n",
    "--- a\n+++ a\n@@ -1 +1 @@\n-one\n+x\n"
    "diff --git a/b b/.git/hooks/x\nrename from b\nrename to .git/hooks/x\n",
    "--- a\n+++ a\n@@ -1 +1 @@\n-one\n+x\ndiff --git a/.git/hooks/x b/.git/hooks/x\nnew file mode 100755\n",
]


@pytest.mark.parametrize("text", SPELLED)
def test_policy_sees_every_path_that_a_patch_touches(work: Workspace, text: str) -> None:
    """Whatever the runner takes for a path, the rules took for one when they judged the call."""
    work.file("a", "one\n")
    work.file("b", "two\n")
    before = set(tree(work.path))
    outcome = work.run("apply_patch", patch=text)
    touched = before ^ set(tree(work.path))
    assert touched <= set(raw_paths({"patch": text})), outcome
    assert (outcome["status"] == "error") is not bool(touched)
