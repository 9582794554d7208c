"""Ports for servers of tests, which no other test on this machine is given meanwhile."""

import contextlib
import fcntl
import os
import socket
import tempfile
from pathlib import Path
from typing import Final

# Below the range of outgoing connections, so that none of them takes a port before it is used.
FIRST: Final = 12_000
END: Final = 32_000


def free_port(turns: Path | None = None) -> int:
    """A TCP port of the loopback interface that nothing uses.

    Servers listen seconds after their port was chosen, and some are killed and started again. So all
    processes of this user take turns: a port is given once, and again only after all others were.

    Args:
        turns: the file that says which port was given last.
    """
    turns = turns or Path(tempfile.gettempdir()) / f"fairlead-test-ports-{os.getuid()}"
    handle = os.open(turns, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        last = os.pread(handle, 16, 0)
        port = int(last) if last.isdigit() else END
        while True:
            port = port + 1 if FIRST <= port < END - 1 else FIRST
            if _is_free(port):
                os.ftruncate(handle, 0)
                os.pwrite(handle, b"%d" % port, 0)
                return port
    finally:
        os.close(handle)


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False
