"""Namespaces of one command, made by a runner that has CAP_SYS_ADMIN in its sandbox (and nowhere else).

The supervisor is the first process of its own process namespace: the command can neither see nor signal the
runner, and when the supervisor dies the kernel kills all of the call. Its own mount namespace hides the
runner's state folder, with the journal and the socket.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from fairlead_tools.runner import linux

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
PR_CAPBSET_READ, PR_CAPBSET_DROP = 23, 24
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 1, 2, 4, 8, 0x4000, 0x40000
_CAP_VERSION_3 = 0x20080522
_SIGCHLD = 17

_libc = ctypes.PyDLL(None, use_errno=True)  # holds the interpreter's lock, as os.fork does


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def fork() -> int:
    """As os.fork, but the child is the first process of new process and mount namespaces.

    Not unshare: that would move every later child of this process too.

    Raises:
        OSError: the kernel does not let us.
    """
    number = linux.SYS_CLONE
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    pid = int(_libc.syscall(number, CLONE_NEWNS | CLONE_NEWPID | _SIGCHLD, None, None, None, None))
    code = ctypes.get_errno()
    if pid == 0:
        python.PyOS_AfterFork_Child()
        return 0
    python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, f"clone: {os.strerror(code)}")
    return pid


def enter(hidden: Iterable[str]) -> None:
    """In the child: its own /proc, and empty folders at `hidden`. All capabilities are gone afterwards.

    Raises:
        OSError: the kernel does not let us; the child must not go on.
    """
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    # Read-only: a sandbox that root started must not reach the kernel's settings.
    _mount("proc", "/proc", "proc", _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    for path in hidden:
        _mount("tmpfs", path, "tmpfs", _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, "size=4k,mode=555")
    drop_capabilities()


def drop_capabilities() -> None:
    """Give all up, also those that a program could bring.

    Raises:
        OSError: the kernel does not let us.
    """
    linux.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    capability = 0
    while linux.prctl_value(PR_CAPBSET_READ, capability) >= 0:
        linux.prctl(PR_CAPBSET_DROP, capability)
        capability += 1
    header = _CapHeader(_CAP_VERSION_3, 0)
    if _libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"capset: {os.strerror(code)}")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    words = [None if each is None else os.fsencode(each) for each in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), options.encode() or None) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {target}: {os.strerror(code)}")
