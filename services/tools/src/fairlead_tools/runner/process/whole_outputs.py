"""Whole outputs of commands whose result was cut, as files of the workspace that the model can read.

They are copies for reading, and the oldest go: the outcome of a call never depends on them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from fairlead_tools.runner.confinement.workspace_root import Root, ToolFailedError

FOLDER = ".fairlead/outputs"
MAX_BYTES = 16 * 1024 * 1024  # of one
MAX_FILES = 20
MAX_ALL_BYTES = 64 * 1024 * 1024

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}\.txt\Z")
_IGNORED = b"*\n"


def keep(root: Root, source: int, call_id: str) -> str:
    """Copy an output into the workspace; its path there. Empty: there is no room, or something is in the way.

    Args:
        source: the open file of the journal.
    """
    name = f"{call_id}.txt"
    if not _NAME.match(name):
        return ""
    try:
        place = root.place(f"{FOLDER}/{name}", create_parents=True)
        try:
            _clean(place.dir_fd)
            _write(place.dir_fd, ".gitignore", _IGNORED)
            return f"{FOLDER}/{name}" if _copy(source, place.dir_fd, name) else ""
        finally:
            place.close()
    except (ToolFailedError, OSError):
        return ""


def _copy(source: int, folder: int, name: str) -> bool:
    fd = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder
    )
    left = MAX_BYTES
    try:
        while left > 0 and (sent := os.sendfile(fd, source, None, left)):
            left -= sent
    except OSError:
        os.unlink(name, dir_fd=folder)
        return False
    finally:
        os.close(fd)
    return True


def _write(folder: int, name: str, content: bytes) -> None:
    with contextlib.suppress(FileExistsError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, 0o644, dir_fd=folder)
        try:
            os.write(fd, content)
        finally:
            os.close(fd)


def _clean(folder: int) -> None:
    """Remove the oldest, so that there is room for one more."""
    found = []
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        names = os.listdir(listed)
    finally:
        os.close(listed)
    for name in names:
        with contextlib.suppress(OSError):
            facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if _NAME.match(name) and stat.S_ISREG(facts.st_mode):
                found.append((facts.st_mtime_ns, facts.st_size, name))
    found.sort()
    size = sum(each[1] for each in found)
    while found and (len(found) >= MAX_FILES or size > MAX_ALL_BYTES - MAX_BYTES):
        _, gone, name = found.pop(0)
        size -= gone
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
