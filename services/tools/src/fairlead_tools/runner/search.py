"""The tools `glob` and `grep`."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from typing import IO, Callable

from fairlead_tools.runner.arguments import Arguments
from fairlead_tools.runner.confine import TEMPORARY_PREFIX, Root, ToolError
from fairlead_tools.runner.environment import find_program
from fairlead_tools.runner.files import printable
from fairlead_tools.runner.outcome import Outcome, done
from fairlead_tools.runner.walk import walk

MAX_FOUND = 500
MAX_MATCHES = 100
MAX_LINE_CHARS = 500
MAX_PATTERN_CHARS = 2_000
MAX_ALTERNATIVES = 100

_SNIFF_BYTES = 8_192
_MAX_LINE_BYTES = 1 << 20
_NOTHING = re.compile(r"(?!)")

Match = tuple[str, int, str]


def glob(root: Root, arguments: Arguments) -> Outcome:
    """Files whose path fits a pattern such as `src/**/*.py`, newest first."""
    pattern = arguments.text("pattern")
    start = arguments.text("path", ".")
    fits = matcher(pattern)
    skip = len(_prefix(root, start))
    found: list[tuple[float, str]] = []
    for each in walk(root, start):
        if each.entry.is_dir(follow_symlinks=False) or not fits(each.path[skip:]):
            continue
        try:
            changed = os.stat(each.name, dir_fd=each.dir_fd, follow_symlinks=False).st_mtime
        except OSError:
            continue
        found.append((changed, each.path))
    if not found:
        return done("No files found.", matches=0)
    found.sort(key=lambda pair: (-pair[0], pair[1]))
    shown = [printable(path) for _, path in found[:MAX_FOUND]]
    if len(found) > len(shown):
        shown.append(f"[{len(found) - len(shown)} of {len(found)} files left out. Use a narrower pattern.]")
    return done("\n".join(shown), matches=len(found))


def _prefix(root: Root, start: str) -> str:
    relative = root.relative(start)
    return "" if relative == "." else relative.rstrip("/") + "/"


def matcher(pattern: str) -> Callable[[str], bool]:
    """Tells whether a relative path fits. `*` stays within a name, `**` spans directories, `{a,b}` is either.

    A pattern without a slash fits names at any depth, as in .gitignore.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"pattern: at most {MAX_PATTERN_CHARS} characters, got {len(pattern)}")
    tests = [_matcher_of_one(each) for each in _alternatives(pattern)]
    return lambda path: any(test(path) for test in tests)


def _alternatives(pattern: str) -> list[str]:
    """The patterns that one with braces stands for; far too many are left as they are."""
    todo, done = [pattern], list[str]()
    while todo and len(todo) + len(done) <= MAX_ALTERNATIVES:
        each = todo.pop()
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", each)
        if braces is None:
            done.append(each)
        else:
            before, after = each[: braces.start()], each[braces.end() :]
            todo += [f"{before}{choice}{after}" for choice in braces[1].split(",")]
    return done + todo


def _matcher_of_one(pattern: str) -> Callable[[str], bool]:
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    compiled: list[re.Pattern[str] | None] = []
    for part in [part for part in pattern.split("/") if part not in ("", ".")]:
        if part != "**":
            compiled.append(re.compile(fnmatch.translate(part)))
        elif not compiled or compiled[-1] is not None:
            compiled.append(None)

    def fits(path: str) -> bool:
        # One row of reachable positions per name: no backtracking, whatever the pattern.
        reachable = _skip_stars(compiled, {0})
        for name in path.split("/"):
            after = set()
            for position in reachable:
                part = compiled[position] if position < len(compiled) else _NOTHING
                if part is None:
                    after.add(position)
                elif part.match(name):
                    after.add(position + 1)
            reachable = _skip_stars(compiled, after)
        return len(compiled) in reachable

    return fits


def _skip_stars(compiled: list[re.Pattern[str] | None], positions: set[int]) -> set[int]:
    """`**` also stands for no directory at all."""
    reached = set(positions)
    for position in positions:
        while position < len(compiled) and compiled[position] is None:
            position += 1
            reached.add(position)
    return reached


def grep(root: Root, arguments: Arguments) -> Outcome:
    """Lines that match a regular expression, as `path:line: text`."""
    pattern = arguments.text("pattern")
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ToolError(f"pattern: at most {MAX_PATTERN_CHARS} characters, got {len(pattern)}")
    start = arguments.text("path", ".")
    only = arguments.text("glob", "")
    ignore_case = arguments.flag("ignore_case")
    literal = arguments.flag("literal")
    limit = arguments.whole("limit", MAX_MATCHES, 1, MAX_MATCHES)
    regex = _compile(pattern, ignore_case, literal)
    program = find_program("rg")
    fd = root.open(start, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            matches = _in_file(root, start, regex)
        elif program:
            hints = _candidates(program, fd, pattern, only, ignore_case=ignore_case, literal=literal)
            matches = _in_candidates(root, start, regex, only, hints)
        else:
            matches = _in_directory(root, start, regex, only)
        shown: list[str] = []
        files = set()
        for path, number, line in matches:
            if len(shown) >= limit:
                shown.append(f"[There are more than {limit} matches. Use a narrower pattern, path or glob.]")
                break
            files.add(path)
            shown.append(f"{printable(path)}:{number}: {_cut(line)}")
    finally:
        os.close(fd)
    return done("\n".join(shown) or "No matches found.", matches=min(len(shown), limit), files=len(files))


def _compile(pattern: str, ignore_case: bool, literal: bool) -> re.Pattern[str]:
    try:
        return re.compile(re.escape(pattern) if literal else pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(f"pattern: is no regular expression: {error}") from None


def _cut(line: str) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]} [{len(line) - MAX_LINE_CHARS} more characters]"


def _in_directory(root: Root, start: str, regex: re.Pattern[str], only: str) -> Iterator[Match]:
    fits = matcher(only) if only else None
    skip = len(_prefix(root, start))
    for each in walk(root, start):
        if not each.entry.is_file(follow_symlinks=False) or each.name.startswith(TEMPORARY_PREFIX):
            continue
        if fits is not None and not fits(each.path[skip:]):
            continue
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        try:
            fd = os.open(each.name, flags, dir_fd=each.dir_fd)
        except OSError:
            continue
        with os.fdopen(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                yield from _in_open_file(each.path, file, regex)


def _in_candidates(
    root: Root, start: str, regex: re.Pattern[str], only: str, candidates: Iterator[str]
) -> Iterator[Match]:
    prefix = _prefix(root, start)
    try:
        for path in candidates:
            with contextlib.suppress(ToolError):  # it went, or led out of the workspace
                yield from _in_file(root, prefix + path, regex)
    except _NoHintsError:
        yield from _in_directory(root, start, regex, only)


def _in_file(root: Root, path: str, regex: re.Pattern[str]) -> Iterator[Match]:
    with os.fdopen(root.open_file(path), "rb") as file:
        yield from _in_open_file(root.relative(path), file, regex)


def _in_open_file(path: str, file: IO[bytes], regex: re.Pattern[str]) -> Iterator[Match]:
    if b"\0" in file.read(_SNIFF_BYTES):
        return
    file.seek(0)
    for number, line in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), 1):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if regex.search(text):
            yield path, number, text


def _candidates(
    program: str, fd: int, pattern: str, only: str, *, ignore_case: bool, literal: bool
) -> Iterator[str]:
    """Paths of files below an open directory in which ripgrep sees a match.

    Only a hint: ripgrep opens paths by name, so a directory that is swapped for a link meanwhile leads
    it astray. Whoever uses a hint opens the file within the workspace and looks for himself.

    Raises:
        _NoHintsError: ripgrep does not understand the pattern.
    """
    import subprocess  # costs every fork of the runner a little, and only this needs it

    command = [program, "--no-config", "--no-messages", "--no-ignore", "--hidden", "--glob=!.git"]
    command += ["--files-with-matches", "--null", "--sort=path", "--text"]
    command += ["--ignore-case"] * ignore_case + ["--fixed-strings"] * literal
    command += [f"--glob={only}"] if only else []
    with subprocess.Popen(
        [*command, "--regexp", pattern, "--", "."],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=f"/proc/self/fd/{fd}",
        pass_fds=(fd,),
    ) as process:
        try:
            rest, is_empty = b"", True
            while process.stdout is not None:
                data = process.stdout.read1(_SNIFF_BYTES)  # type: ignore[attr-defined]
                if not data:
                    break
                is_empty = False
                *names, rest = (rest + data).split(b"\0")
                yield from (os.fsdecode(name[2:] if name.startswith(b"./") else name) for name in names)
            if process.wait() > 1 and is_empty:
                raise _NoHintsError
        finally:
            process.kill()


class _NoHintsError(Exception):
    """Every file has to be looked at."""
