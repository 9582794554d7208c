"""Processes, as the system and Fairlead's own record know them."""

import json
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether the process runs: one that has ended and was not waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3] not in (b"Z", b"X")


def recorded_pids(home: Path) -> dict[str, int]:
    """Process numbers by name, as a home's own record has them; empty without one."""
    try:
        rows = json.loads((home / "up.json").read_text())["processes"]
    except (OSError, ValueError, KeyError):
        return {}
    return {row["name"]: row["pid"] for row in rows}
