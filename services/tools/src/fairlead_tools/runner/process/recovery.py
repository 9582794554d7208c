"""Kills what a dead runner or supervisor left behind, found by ancestry, session and environment."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from fairlead_tools.runner import linux
from fairlead_tools.runner.linux import ProcessStat
from fairlead_tools.runner.process import environment

PATIENCE_S = 5.0
ORPHAN_PATIENCE_S = 10.0


def kill_orphans(known: set[int], patience_s: float = ORPHAN_PATIENCE_S) -> int:
    """Kill orphans: children that this process did not start, with all their descendants; how many."""
    own = os.getpid()
    end = time.monotonic() + patience_s
    killed: set[int] = set()
    while time.monotonic() < end:
        alive = list(linux.processes())
        orphans = [each for each in alive if each.parent == own and each.pid not in known]
        if not orphans:
            break
        for each in orphans + linux.descendants({each.pid for each in orphans}, alive):
            linux.kill(each)
            killed.add(each.pid)
        time.sleep(0.005)
        for each in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each.pid, os.WNOHANG)
    return len(killed)


def kill_leftovers(call_id: str, record: dict[str, Any], boot: str) -> int:
    """Kill the processes of this call; how many. A process with a recycled pid is never killed."""
    if record.get("boot", boot) != boot:
        return 0
    killed: set[int] = set()
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = _leftovers(call_id, record)
        if not found:
            break
        for each in found:
            linux.kill(each)
            killed.add(each.pid)
        time.sleep(0.01)
    return len(killed)


def _leftovers(call_id: str, record: dict[str, Any]) -> list[ProcessStat]:
    """Three signs: it descends from the supervisor, has the call's marks, or shares a session with such.

    A session's number is not given away while a process is in it, so one member that is surely
    ours proves the others. The supervisor itself is known by pid and start time.
    """
    alive = list(linux.processes())
    variables = {f"{name}={value}".encode("ascii") for name, value in environment.marks(call_id).items()}
    supervisor = {
        each.pid for each in alive if (each.pid, each.start) == (record.get("pid"), record.get("start"))
    }
    sure = supervisor | {each.pid for each in alive if linux.has_variables(each.pid, variables)}
    sessions = {each.session for each in alive if each.pid in sure}
    roots = {each.pid for each in alive if each.session in sessions} | sure
    below = {each.pid for each in linux.descendants(roots, alive)}
    return [each for each in alive if each.pid in roots | below]
