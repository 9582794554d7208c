"""Whether a file is still as the session saw it: nothing that someone else changed is replaced unseen."""

from __future__ import annotations

import hashlib
import os

from fairlead_tools.runner.confinement.workspace_root import Root, ToolFailedError
from fairlead_tools.runner.tools.hints import next_call

MAX_BYTES = 10 * 1024 * 1024  # of files that are watched


def digest(content: bytes) -> str:
    """What tells this content from another one; empty for one that is too large to be watched."""
    return "" if len(content) > MAX_BYTES else hashlib.blake2b(content, digest_size=16).hexdigest()


def note_read(root: Root, fd: int) -> None:
    """The session sees the open file as it is now."""
    if os.fstat(fd).st_size <= MAX_BYTES:
        root.noted[root.real(fd)] = digest(_all(fd))


def _all(fd: int) -> bytes:
    parts = []
    at = 0
    while at <= MAX_BYTES and (part := os.pread(fd, MAX_BYTES + 1 - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _open(root: Root, path: str) -> int:
    return root.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)


def is_changed(root: Root, path: str) -> bool:
    """Whether the file is another one than the session last saw; no, if it never did or it is gone."""
    if not root.seen:
        return False
    try:
        fd = _open(root, path)
    except ToolFailedError:
        return False
    try:
        known = root.seen.get(root.real(fd))
        return known is not None and known != digest(_all(fd))
    finally:
        os.close(fd)


def check_unchanged(root: Root, path: str, what: str) -> None:
    """See that nothing is lost that the session never saw.

    Raises:
        ToolFailedError: the file changed since the session read it.
    """
    if is_changed(root, path):
        raise ToolFailedError(
            f"{path}: changed since you read it, so it was not {what}. {next_call('read', path=path)}"
        )


def note_written(root: Root, path: str) -> None:
    """The session knows the file as it is now."""
    fd = _open(root, path)
    try:
        note_read(root, fd)
    finally:
        os.close(fd)
