"""What a manager of services says of one."""

from pathlib import Path
from typing import NamedTuple, Protocol

from fairlead_node.os_service.actions import ServiceAction
from fairlead_node.os_service.spec import ServiceFiles, ServiceScope, ServiceSpec


class ServiceStatus(NamedTuple):
    """One service as its manager sees it.

    Fields:
        active: in the manager's words: `active`, `failed`, `inactive`, ... running: it has a process.
        since: when that began, for people. restarts: by themselves, since it was started.
        why: how the last process ended, where it did not end well.
        commands: processes of its group that are not its own services: what agents run; None: unknown.
    """

    name: str
    scope: ServiceScope
    installed: bool
    active: str = ""
    running: bool = False
    pid: int = 0
    since: str = ""
    restarts: int = 0
    enabled: bool = False
    why: str = ""
    commands: int | None = None
    memory_bytes: int | None = None


class Controller(Protocol):
    """systemd or launchd, for services of one scope."""

    def places(self, name: str) -> ServiceFiles:
        """Where the files of a service lie."""

    def definition(self, wanted: ServiceSpec) -> str:
        """The text of its unit or property list."""

    def begin(self, name: str, *, changed: bool) -> list[ServiceAction]:
        """Make it known and start it, or start it again where it `changed`."""

    def end(self, name: str) -> list[ServiceAction]:
        """Stop it and forget it."""

    def forget(self, name: str) -> list[ServiceAction]:
        """What is left to do once its file is gone."""

    def turn(self, name: str, verb: str) -> list[ServiceAction]:
        """`start`, `stop` or `restart`."""

    def state(self, name: str) -> ServiceStatus:
        """How it is."""

    def home(self, name: str) -> Path | None:
        """FAIRLEAD_HOME of the installed service; None if there is none."""

    def log_command(self, name: str, *, lines: int, follow: bool) -> list[str]:
        """What shows its log."""

    def end_commands(self, name: str) -> None:
        """End what agents run."""
