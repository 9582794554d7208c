"""The desk of a guard: where it is handed the pipes for its next command, after the one before has ended."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

_WORD = b"."


def open_desk() -> tuple[int, int]:
    """The runner's end and the guard's. When the runner's is closed, the guard leaves."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()


def hand_over(desk: int, fds: list[int]) -> None:
    """Give the guard copies of these files.

    Raises:
        OSError: it is gone.
    """
    with _socket(desk) as sock:
        socket.send_fds(sock, [_WORD], fds)


def take(desk: int, count: int) -> list[int]:
    """What was handed over, once it is; the process leaves when nothing more will be."""
    with _socket(desk) as sock:
        word, fds, _, _ = socket.recv_fds(sock, len(_WORD), count, socket.MSG_CMSG_CLOEXEC)
    if not word or len(fds) != count:
        os._exit(0)
    return list(fds)


@contextlib.contextmanager
def _socket(fd: int) -> Iterator[socket.socket]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)
    try:
        yield sock
    finally:
        sock.detach()
