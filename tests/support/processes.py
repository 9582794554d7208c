"""Processes, as the system and Fairlead's own record know them."""

import json
import os
import signal
from pathlib import Path

from tests.support.waiting import eventually


def hold(pid: int) -> None:
    """Stop a process by SIGSTOP. Returns when all its threads are held: until then one may still answer."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: _is_held(pid), f"all threads of {pid} are held")


def _is_held(pid: int) -> bool:
    try:
        return all(_state(thread / "stat") == b"T" for thread in Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # a thread ended meanwhile
        return False


def _state(stat: Path) -> bytes:
    text = stat.read_bytes()
    return text[text.rindex(b")") + 2 : text.rindex(b")") + 3]


def is_alive(pid: int) -> bool:
    """Whether the process runs: one that has ended and was not waited for does not."""
    try:
        return _state(Path(f"/proc/{pid}/stat")) not in (b"Z", b"X")
    except OSError:
        return False


def recorded_pids(home: Path) -> dict[str, int]:
    """Process numbers by name, as a home's own record has them; empty without one."""
    try:
        rows = json.loads((home / "up.json").read_text())["processes"]
    except (OSError, ValueError, KeyError):
        return {}
    return {row["name"]: row["pid"] for row in rows}
