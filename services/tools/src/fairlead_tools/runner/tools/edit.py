"""The tool `edit`: exact replacements in one file, all of them or none."""

from __future__ import annotations

import os

from fairlead_tools.runner.confinement.workspace_root import Root, ToolFailedError
from fairlead_tools.runner.outcome import CallOutcome, done
from fairlead_tools.runner.tools.arguments import Arguments
from fairlead_tools.runner.tools.files import encode

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_EDITS = 100
MAX_DIFF_CHARS = 50_000
_MAX_DIFF_LINES = 3_000
_CONTEXT = 3


def edit(root: Root, arguments: Arguments) -> CallOutcome:
    """The file with every edit made, one after the other; `details.diff` says what changed."""
    path = arguments.text("path")
    edits = arguments.objects("edits", MAX_EDITS)
    with os.fdopen(root.open_file(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_FILE_BYTES:
            raise ToolFailedError(f"{path}: at most {MAX_FILE_BYTES} bytes can be edited, it has {size}")
        before = file.read(MAX_FILE_BYTES).decode("utf-8", "surrogateescape")
    after = before
    replaced = 0
    for each in edits:
        after, count = _apply(path, after, each)
        replaced += count
    if after == before:
        raise ToolFailedError(f"{path}: the edits change nothing")
    root.replace_file(path, encode(after, "edits"))
    diff = unified_diff(path, before, after)
    return done(f"Edited {path}: {replaced} replacement{'s' if replaced > 1 else ''}.", diff=diff)


def _apply(path: str, text: str, each: Arguments) -> tuple[str, int]:
    old = each.text("old_text")
    new = each.text("new_text")
    every = each.flag("replace_all")
    field = each.name("old_text")
    if not old:
        raise ToolFailedError(f"{field}: must not be empty")
    if "\r\n" in text and "\r" not in old:  # models write LF; the file keeps its line ends
        old = old.replace("\n", "\r\n")
        new = new.replace("\r\n", "\n").replace("\n", "\r\n")
    count = text.count(old)
    if count == 0:
        raise ToolFailedError(
            f"{field}: found 0 times in {path}; it must match exactly, with all spaces and line ends. "
            "No edit was made."
        )
    if count > 1 and not every:
        raise ToolFailedError(
            f"{field}: found {count} times in {path} (lines {_lines(text, old)}); give more context to make "
            "it unique, or set replace_all. No edit was made."
        )
    return text.replace(old, new), count


def _lines(text: str, old: str) -> str:
    found: list[str] = []
    position = text.find(old)
    while position >= 0 and len(found) < 5:
        found.append(str(text.count("\n", 0, position) + 1))
        position = text.find(old, position + len(old))
    return ", ".join(found) + (", ..." if position >= 0 else "")


def unified_diff(path: str, before: str, after: str) -> str:
    """What changed, as a unified diff. Equal ends are cut off first: difflib is quadratic."""
    old, new = before.splitlines(), after.splitlines()
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start = max(0, head - _CONTEXT)
    old_part = old[start : len(old) - max(0, tail - _CONTEXT)]
    new_part = new[start : len(new) - max(0, tail - _CONTEXT)]
    if len(old_part) + len(new_part) > _MAX_DIFF_LINES:
        return (
            f"--- {path}\n+++ {path}\n[{len(old_part)} lines became {len(new_part)}; too many to compare]\n"
        )
    import difflib  # only here, so that the runner stays small and forks fast

    lines = list(difflib.unified_diff(old_part, new_part, path, path, lineterm="", n=_CONTEXT))
    text = "\n".join(_shift(line, start) for line in lines) + "\n"
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= MAX_DIFF_CHARS else text[:MAX_DIFF_CHARS] + "\n[cut]\n"


def _shift(line: str, by: int) -> str:
    """A hunk header with its line numbers moved down by the lines that were cut off."""
    if not line.startswith("@@ "):
        return line
    moved = []
    for part in line.split(" ")[1:3]:
        first, comma, count = part[1:].partition(",")
        moved.append(f"{part[0]}{int(first) + by}{comma}{count}")
    return f"@@ {moved[0]} {moved[1]} @@"
