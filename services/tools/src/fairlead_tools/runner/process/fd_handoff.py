"""The desk of a guard: where it is handed the pipes for its next command, after the one before has ended."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator

PATIENCE_MS = 500  # with a guard that has reported and is about to say whether it stays

_WORD = b"."


def open_desk() -> tuple[int, int]:
    """The runner's end and the guard's. When the runner's is closed, the guard leaves."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()


def hand_over(desk: int, fds: list[int]) -> None:
    """Give the guard copies of these files, once it says that it is ready.

    Raises:
        OSError: it is gone, or does not say so.
    """
    poll = select.poll()
    poll.register(desk, select.POLLIN)
    if not poll.poll(PATIENCE_MS):
        raise TimeoutError("the guard does not come to its desk")
    with _socket(desk) as sock:
        if not sock.recv(len(_WORD)):
            raise BrokenPipeError("the guard left")
        socket.send_fds(sock, [_WORD], fds)


def take(desk: int, count: int) -> list[int]:
    """Say that we are ready; what is handed over then. The process leaves when nothing will be."""
    with _socket(desk) as sock:
        try:
            sock.send(_WORD)
            word, fds, _, _ = socket.recv_fds(sock, len(_WORD), count)
        except ConnectionError:  # reset: the runner did not even read that we are ready
            os._exit(0)
    if not word or len(fds) != count:
        os._exit(0)
    for fd in fds:  # recv_fds takes flags, and does not pass them on
        os.set_inheritable(fd, False)
    return list(fds)


@contextlib.contextmanager
def _socket(fd: int) -> Iterator[socket.socket]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)
    try:
        yield sock
    finally:
        sock.detach()
