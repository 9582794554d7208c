"""Has a nats-server of this home read its configuration again, and waits for what it says of it."""

import os
import signal
import time
from pathlib import Path
from typing import Final

from fairlead.errors import FAILED, CommandError
from fairlead.home import Home
from fairlead.processes import recorded

RELOAD_WITHIN_S: Final = 5.0
_RELOADED: Final = "Reloaded server configuration"
_REFUSED: Final = "Failed to reload server configuration"


def reload_server(home: Home, name: str) -> bool:
    """Whether the server that runs under `name` took its configuration over; False if none runs.

    Raises:
        CommandError: it refuses the file, or says nothing within five seconds.
    """
    server = next((process for process in recorded(home) if process.name == name), None)
    if server is None:
        return False
    # What an account that was added imports, nats-server (2.15) serves from the next reload on.
    for _ in range(2):
        _reload(home, name, server.pid)
    return True


def _reload(home: Home, name: str, pid: int) -> None:
    log = home.logs / f"{name}.log"
    before = log.stat().st_size if log.exists() else 0
    os.kill(pid, signal.SIGHUP)
    deadline = time.monotonic() + RELOAD_WITHIN_S
    while time.monotonic() < deadline:
        said = _said_since(log, before)
        if _RELOADED in said:
            return
        if _REFUSED in said:
            line = next(line for line in said.splitlines() if _REFUSED in line)
            raise CommandError(f"the NATS server ({name}) keeps its users: {line}", FAILED)
        time.sleep(0.02)
    raise CommandError(
        f"the NATS server ({name}, process {pid}) did not take over its users within "
        f"{RELOAD_WITHIN_S:.0f} s: see {log}",
        FAILED,
    )


def _said_since(log: Path, position: int) -> str:
    """What a log says after `position`; all of it if it was begun anew."""
    try:
        with log.open("rb") as file:
            if file.seek(0, os.SEEK_END) < position:
                position = 0
            file.seek(position)
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
