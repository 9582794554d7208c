"""What a runner that was killed left behind: found by lineage, session and environment, and killed."""

from __future__ import annotations

import time
from typing import Any

from fairlead_tools.runner import environment, linux
from fairlead_tools.runner.linux import Process

PATIENCE_S = 5.0


def kill_leftovers(call_id: str, record: dict[str, Any], boot: str) -> int:
    """How many processes of this call were killed. One that got a recycled pid never is."""
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


def _leftovers(call_id: str, record: dict[str, Any]) -> list[Process]:
    """Three signs: it stems from the guard, it carries the call's marks, or it shares a session with such.

    A session's number is not given away while a process is in it, so one member that is surely
    ours proves the others. The guard itself is known by pid and start time.
    """
    alive = list(linux.processes())
    variables = {f"{name}={value}".encode("ascii") for name, value in environment.marks(call_id).items()}
    guard = {each.pid for each in alive if (each.pid, each.start) == (record.get("pid"), record.get("start"))}
    sure = guard | {each.pid for each in alive if linux.has_variables(each.pid, variables)}
    sessions = {each.session for each in alive if each.pid in sure}
    roots = {each.pid for each in alive if each.session in sessions} | sure
    below = {each.pid for each in linux.descendants(roots, alive)}
    return [each for each in alive if each.pid in roots | below]
