"""What a process of Fairlead hides from other programs of its user and from other users of the machine."""

import ctypes
import os
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_OWNER_ONLY: Final = 0o077


def hide_memory() -> bool:
    """Keep programs of the same user out of this process's memory, environment and open files.

    A command of an agent with sandbox `local` is such a program: without this `/proc/<pid>/environ` tells it
    the keys of model providers. Only root can look from here on. What this process starts is not affected.

    Returns:
        False where the system has no such thing (it is Linux's).
    """
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def open_private(path: str, flags: int) -> int:
    """An `opener` for `open`: what it makes is for its owner only, whatever the umask is."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def keep_files_private() -> int:
    """Make files for their owner only from here on; the umask before, for what is started for others."""
    return os.umask(_OWNER_ONLY)
