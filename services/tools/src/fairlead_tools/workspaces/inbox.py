"""Files that a session's messages name, put into its workspace: `.fairlead/inbox/<entry>/<name>`."""

import os
import re
import stat
from pathlib import Path
from typing import Final

from fairlead_common.errors import InvalidInputError
from fairlead_common.protocol.messages import InboxPart
from fairlead_tools.runner.confinement.workspace_root import PinnedPath, Root, ToolFailedError

FOLDER: Final = ".fairlead"
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}\Z")


def store_part(folder: Path, part: InboxPart) -> int:
    """Write one part of a file; how many of its bytes are stored now. The same part again changes nothing.

    The file has its name only once it is complete. Links in the workspace lead nowhere else.

    Raises:
        InvalidInputError: a name is not allowed, or the file cannot be there.
        OSError: it cannot be written now.
    """
    for field, name in (("entry", part.entry), ("name", part.name)):
        if not _NAME.match(name):
            raise InvalidInputError(f"inbox.{field}", f"must match {_NAME.pattern}, got {name[:100]!r}")
    root = Root(str(folder))
    try:
        place = root.place(f"{FOLDER}/inbox/{part.entry}/{part.name}", create_parents=True)
        try:
            return _write(place, part)
        finally:
            place.close()
            _keep_out_of_git(root)
    except ToolFailedError as error:
        raise InvalidInputError("inbox", str(error)) from error
    finally:
        root.close()


def _write(place: PinnedPath, part: InboxPart) -> int:
    if _size(place, place.name) == part.size_bytes:
        return part.size_bytes
    growing = f".{place.name}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(growing, flags, 0o644, dir_fd=place.dir_fd)
    try:
        data, end = part.data, part.offset + len(part.data)
        while data:
            data = data[os.pwrite(fd, data, end - len(data)) :]
        if end >= part.size_bytes:
            os.ftruncate(fd, part.size_bytes)
            os.rename(growing, place.name, src_dir_fd=place.dir_fd, dst_dir_fd=place.dir_fd)
    finally:
        os.close(fd)
    return end


def _size(place: PinnedPath, name: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=place.dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _keep_out_of_git(root: Root) -> None:
    place = root.place(f"{FOLDER}/.gitignore")
    try:
        if _size(place, place.name) is None:
            root.replace_file(f"{FOLDER}/.gitignore", b"*\n")
    finally:
        place.close()
