"""What a test sees of the sandboxes of namespaces that an executor made."""

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

from fairlead_tools.sandboxes import cgroups
from fairlead_tools.sandboxes.bubblewrap import group_name

MISSING = "" if shutil.which("bwrap") else "bwrap is not installed"


def first_processes(state: Path) -> list[int]:
    """The first process of each sandbox that lives, as this machine counts them. All others end with it."""
    found = []
    for info in state.glob("bubblewrap/[!l]*/info"):  # those of `look-` are only tried out
        with contextlib.suppress(ValueError, KeyError, OSError):
            about = json.loads(info.read_bytes())
            pid = int(about["child-pid"])
            if Path(f"/proc/{pid}/ns/pid").stat().st_ino == about["pid-namespace"] and not _is_dead(pid):
                found.append(pid)
    return found


def processes_in(state: Path) -> list[int]:
    """All processes that live in these sandboxes, also in namespaces that were made within."""
    found = []
    todo = first_processes(state)
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError):
            todo += [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        found.append(pid)
    return found


def kill(state: Path) -> None:
    """Kill the first process of each."""
    for pid in first_processes(state):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def clear(state: Path, within_s: float = 15.0) -> None:
    """Kill them all, and leave no control group behind."""
    kill(state)
    end = time.monotonic() + within_s
    for folder in state.glob("bubblewrap/*"):
        while not cgroups.remove(group_name(folder)) and time.monotonic() < end:
            time.sleep(0.005)


def _is_dead(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] in (b"Z", b"X")
