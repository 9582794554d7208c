"""Hands the pipes of the next command to an idle supervisor process (SCM_RIGHTS)."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator

PATIENCE_MS = 500  # for a supervisor that has reported to announce whether it stays

_WORD = b"."


def open_pair() -> tuple[int, int]:
    """The runner's end and the supervisor's. When the runner closes its end, the supervisor exits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return ours.detach(), theirs.detach()


def hand_over(handoff: int, fds: list[int]) -> None:
    """Send these descriptors to the supervisor, once it is ready.

    Raises:
        OSError: it is gone, or was not ready within `PATIENCE_MS`.
    """
    poll = select.poll()
    poll.register(handoff, select.POLLIN)
    if not poll.poll(PATIENCE_MS):
        raise TimeoutError("the supervisor was not ready in time")
    with _socket(handoff) as sock:
        if not sock.recv(len(_WORD)):
            raise BrokenPipeError("the supervisor has exited")
        socket.send_fds(sock, [_WORD], fds)


def take(handoff: int, count: int) -> list[int]:
    """Announce readiness, and receive `count` descriptors. The process exits when none will come."""
    with _socket(handoff) as sock:
        try:
            sock.send(_WORD)
            word, fds, _, _ = socket.recv_fds(sock, len(_WORD), count)
        except ConnectionError:  # reset: the runner closed without reading our readiness
            os._exit(0)
    if not word or len(fds) != count:
        os._exit(0)
    for fd in fds:  # recv_fds ignores its flags
        os.set_inheritable(fd, False)
    return list(fds)


@contextlib.contextmanager
def _socket(fd: int) -> Iterator[socket.socket]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd)
    try:
        yield sock
    finally:
        sock.detach()
