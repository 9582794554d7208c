"""Which executors of this host live: each holds a lock that the kernel lets go of when it dies."""

import fcntl
import os
from pathlib import Path


class Liveness:
    """A folder with one locked file for each executor."""

    def __init__(self, state: Path, executor: str) -> None:
        self._folder = state / "executors"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._executor = executor
        self._fd = -1

    def begin(self) -> bool:
        """Whether this executor now counts as alive; False if one of its name lives already."""
        self._fd = self._try(self._executor, os.O_RDWR | os.O_CREAT)
        return self._fd >= 0

    def alive(self, executor: str) -> bool:
        """Whether that executor of this host lives. This one does not count as another."""
        if executor == self._executor:
            return False
        try:
            fd = self._try(executor, os.O_RDWR)
        except FileNotFoundError:
            return False
        if fd < 0:
            return True
        os.close(fd)
        return False

    def _try(self, executor: str, flags: int) -> int:
        fd = os.open(self._folder / executor, flags | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return -1
        return fd
