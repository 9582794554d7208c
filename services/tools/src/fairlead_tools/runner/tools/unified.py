"""Unified diffs, as `diff -u` and git write them."""

from __future__ import annotations

import re

from fairlead_tools.runner.confinement.workspace_root import ToolFailedError
from fairlead_tools.runner.tools.hunks import Change, Hunk

_RANGE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NOTHING = "/dev/null"


def parse_unified(lines: list[str]) -> list[Change]:
    """The changes of a unified diff. Line numbers are hints; the context decides.

    Raises:
        ToolFailedError: it is none; the text names the line.
    """
    changes: list[Change] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git ") or _is_head(lines, at):
            change, at = _file(lines, at)
            changes.append(change)
        else:
            at += 1  # words before, such as of a mail or `index ...`
    return changes


def _is_head(lines: list[str], at: int) -> bool:
    return lines[at].startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ ")


def _file(lines: list[str], at: int) -> tuple[Change, int]:
    old = new = moved_from = moved_to = ""
    is_git = lines[at].startswith("diff --git ")
    deleted = added = False
    begun = at
    at += is_git
    while at < len(lines) and not _is_head(lines, at) and not lines[at].startswith(("diff --git ", "@@ ")):
        line = lines[at]
        moved_from = line[12:].strip() if line.startswith("rename from ") else moved_from
        moved_to = line[10:].strip() if line.startswith("rename to ") else moved_to
        deleted = deleted or line.startswith("deleted file mode")
        added = added or line.startswith("new file mode")
        if line.startswith(("GIT binary patch", "Binary files ")):
            raise ToolFailedError(f"patch: line {at + 1}: binary files cannot be patched")
        at += 1
    if at < len(lines) and _is_head(lines, at):
        old, new = _path(lines[at][4:], "a/"), _path(lines[at + 1][4:], "b/")
        at += 2
    elif is_git and (deleted or added):
        raise ToolFailedError(f"patch: line {begun + 1}: an empty file needs its --- and +++ lines too")
    hunks: list[Hunk] = []
    while at < len(lines) and lines[at].startswith("@@ "):
        hunk, at = _hunk(lines, at)
        hunks.append(hunk)
    if added or old == _NOTHING:
        rows = [row[1:] for hunk in hunks for row in hunk.rows]
        bare = hunks and lines[at - 1].startswith("\\")  # no newline at the end of the file
        return Change("add", new, "\n".join(rows) + ("" if bare or not rows else "\n")), at
    if deleted or new == _NOTHING:
        return Change("delete", old), at
    path = moved_from or old or new
    target = moved_to or (new if new and new != path else "")
    if not path:
        raise ToolFailedError(f"patch: line {begun + 1}: names no file")
    if not hunks and not target:
        raise ToolFailedError(f"patch: {path}: has no hunk")
    return Change("update", path, target=target, hunks=tuple(hunks)), at


def _path(text: str, prefix: str) -> str:
    name = text.split("\t")[0].strip()
    return name[len(prefix) :] if name.startswith(prefix) else name


def _hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    """One hunk by the counts in its head, or by its marks where models count wrong."""
    head = _RANGE.match(lines[at])
    begun = at
    at += 1
    rows: list[str] = []
    while at < len(lines):
        line = lines[at]
        if line.startswith(("@@ ", "diff --git ")) or _is_head(lines, at):
            break
        if line.startswith("\\"):  # about the newline at the end of the file, which stays as it is
            at += 1
            continue
        if line[:1] not in ("", " ", "+", "-"):
            break
        rows.append(line or " ")
        at += 1
    while rows and rows[-1] == " " and at == len(lines) and len(rows) > 1:
        rows.pop()
    if not rows:
        raise ToolFailedError(f"patch: line {begun + 1}: the hunk is empty")
    if head is None:
        return Hunk(rows, []), at
    first = int(head[1])
    return Hunk(rows, [], line=first if int(head[2] or 1) == 0 else max(0, first - 1)), at
