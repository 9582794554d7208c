"""Fail-points of the runner: the twin of fairlead_common/failpoints.py, which is out of reach here.

The points are registered there. Only with `FAIRLEAD_TEST=1` and `FAIRLEAD_FAILPOINTS=<folder>`.
"""

from __future__ import annotations

import json
import os
import signal
import time

_folder = os.environ.get("FAIRLEAD_FAILPOINTS") if os.environ.get("FAIRLEAD_TEST") == "1" else None


def failpoint(name: str) -> None:
    """Pass a point."""
    if _folder:
        _hit(_folder, name)


def _hit(folder: str, name: str) -> None:
    path = os.path.join(folder, name)
    taken = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        os.rename(path, taken)
    except OSError:  # not armed, or out of reach in a sandbox
        return
    with open(taken, encoding="ascii") as file:
        action, count = file.read().split()
    if int(count) > 1:
        with open(taken, "w", encoding="ascii") as file:
            file.write(f"{action} {int(count) - 1}")
        os.rename(taken, path)
        return
    record = {
        "point": name,
        "action": action,
        "pid": os.getpid(),
        "t": time.monotonic_ns(),
        "wall_ms": time.time_ns() // 1_000_000,
    }
    fd = os.open(os.path.join(folder, "landed"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, json.dumps(record).encode("ascii") + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
    os.kill(os.getpid(), signal.SIGKILL if action == "kill" else signal.SIGSTOP)
