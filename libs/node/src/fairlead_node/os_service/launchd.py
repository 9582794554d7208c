"""Services of launchd: agents of one user, or daemons of the machine."""

import contextlib
import os
import plistlib
import re
from pathlib import Path
from typing import Final

from fairlead_node.os_service.actions import RunCommand, ServiceAction, run
from fairlead_node.os_service.plist import plist_text
from fairlead_node.os_service.spec import ServiceFiles, ServiceScope, ServiceSpec, label, launchd_places
from fairlead_node.os_service.status import ServiceStatus
from fairlead_node.os_service.unit import STOP_S

_QUICK_S: Final = 15.0
_FIELD: Final = re.compile(r"^\s*(state|pid|runs|last exit code) = (.+?)\s*$", re.MULTILINE)


class Launchd:
    """The manager of this user's agents (`user`) or of the daemons (`system`)."""

    def __init__(self, scope: ServiceScope) -> None:
        self.scope: ServiceScope = scope
        self._domain = "system" if scope == "system" else f"gui/{os.geteuid()}"

    def places(self, name: str) -> ServiceFiles:
        """The property list, the environment file and the log."""
        return launchd_places(self.scope, name)

    def definition(self, wanted: ServiceSpec) -> str:
        """The property list."""
        return plist_text(wanted)

    def begin(self, name: str, *, changed: bool) -> list[ServiceAction]:
        """Known and started; where it changed, what launchd knew is forgotten first."""
        target, file = self._target(name), str(self.places(name).definition)
        if not changed:
            return [
                RunCommand(["launchctl", "bootstrap", self._domain, file], may_fail=True),
                RunCommand(["launchctl", "kickstart", target]),
            ]
        return [
            RunCommand(["launchctl", "bootout", target], may_fail=True),
            RunCommand(["launchctl", "enable", target]),
            # bootout returns while the old one still hands over; until it is gone launchd refuses.
            RunCommand(["launchctl", "bootstrap", self._domain, file], patience_s=STOP_S),
        ]

    def end(self, name: str) -> list[ServiceAction]:
        """Stopped and no longer known."""
        return [RunCommand(["launchctl", "bootout", self._target(name)], may_fail=True)]

    def forget(self, name: str) -> list[ServiceAction]:  # noqa: ARG002 - launchd has forgotten it with the end
        """Nothing more."""
        return []

    def turn(self, name: str, verb: str) -> list[ServiceAction]:
        """`start`, `stop` or `restart`. A stopped one is started again at the next login."""
        target = self._target(name)
        match verb:
            case "stop":
                return [RunCommand(["launchctl", "bootout", target])]
            case "restart":
                return [RunCommand(["launchctl", "kickstart", "-k", target])]
            case _:
                return self.begin(name, changed=False)

    def state(self, name: str) -> ServiceStatus:
        """How it is."""
        text = run(["launchctl", "print", self._target(name)], may_fail=True, timeout_s=_QUICK_S)
        found: dict[str, str] = {}
        for key, value in _FIELD.findall(text):
            found.setdefault(key, value)
        pid, last = found.get("pid", ""), found.get("last exit code", "")
        return ServiceStatus(
            name=name,
            scope=self.scope,
            installed=self.places(name).definition.exists(),
            active=found.get("state", "not loaded"),
            running=found.get("state") == "running",
            pid=int(pid) if pid.isdecimal() else 0,
            restarts=max(0, int(found["runs"]) - 1) if found.get("runs", "").isdecimal() else 0,
            enabled=bool(text),
            why=f"exit status {last}" if last not in ("", "0", "(never exited)") else "",
        )

    def home(self, name: str) -> Path | None:
        """FAIRLEAD_HOME as the property list has it."""
        with contextlib.suppress(OSError, KeyError, ValueError, plistlib.InvalidFileException):
            content = plistlib.loads(self.places(name).definition.read_bytes())
            return Path(content["EnvironmentVariables"]["FAIRLEAD_HOME"])
        return None

    def log_command(self, name: str, *, lines: int, follow: bool) -> list[str]:
        """Tail of the log file."""
        return ["tail", "-n", str(lines), *(["-F"] if follow else []), str(self.places(name).log)]

    def end_commands(self, name: str) -> None:  # noqa: ARG002
        """Launchd keeps no account of them: each ends by itself, or with its session."""
        return

    def _target(self, name: str) -> str:
        return f"{self._domain}/{label(name)}"
