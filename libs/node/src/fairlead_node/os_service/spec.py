"""What is to run as a service, as whom, and where its files lie."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from fairlead_common.installation.errors import CONFIG, FAILED, USAGE, CommandError
from fairlead_common.installation.home import home_from_environment

ServiceScope = Literal["user", "system"]
ServiceKind = Literal["up", "executor"]

SYSTEM_USER: Final = "fairlead"
SYSTEM_HOME: Final = Path("/var/lib/fairlead")
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMES: Final[dict[ServiceKind, str]] = {"up": "fairlead", "executor": "fairlead-executor"}
_LABEL: Final = "dev.fairlead."


class ServiceFiles(NamedTuple):
    """Where the files of a service lie."""

    definition: Path
    environment: Path
    log: Path | None = None


class ServiceSpec(NamedTuple):
    """One service.

    Fields:
        program: the command, absolute. arguments: what follows it.
        user, user_home: as whom it runs; the folder is $HOME.
        home: FAIRLEAD_HOME. search_path: its PATH.
    """

    kind: ServiceKind
    scope: ServiceScope
    name: str
    program: list[str]
    arguments: list[str]
    user: str
    user_home: Path
    home: Path
    search_path: str
    version: str
    places: ServiceFiles

    @property
    def command(self) -> list[str]:
        """The whole command line."""
        return [*self.program, *self.arguments]


def systemd_places(scope: ServiceScope, name: str, environ: Mapping[str, str] | None = None) -> ServiceFiles:
    """The unit and its environment file."""
    if scope == "system":
        return ServiceFiles(Path(f"/etc/systemd/system/{name}.service"), Path(f"/etc/fairlead/{name}.env"))
    folder = config_folder(environ)
    return ServiceFiles(folder / "systemd" / "user" / f"{name}.service", folder / "fairlead" / f"{name}.env")


def launchd_places(scope: ServiceScope, name: str, environ: Mapping[str, str] | None = None) -> ServiceFiles:
    """The property list, its environment file and its log."""
    file = f"{_LABEL}{name}.plist"
    if scope == "system":
        return ServiceFiles(
            Path("/Library/LaunchDaemons") / file,
            Path(f"/etc/fairlead/{name}.env"),
            Path(f"/var/log/{name}.log"),
        )
    library = Path("~/Library").expanduser()
    return ServiceFiles(
        library / "LaunchAgents" / file,
        config_folder(environ) / "fairlead" / f"{name}.env",
        library / "Logs" / f"{name}.log",
    )


def label(name: str) -> str:
    """What launchd calls it."""
    return f"{_LABEL}{name}"


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """`XDG_CONFIG_HOME`, else ~/.config."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_CONFIG_HOME") or "~/.config").expanduser().absolute()


def home_of(scope: ServiceScope) -> Path:
    """FAIRLEAD_HOME of the service: what is set, else the usual one of its scope."""
    if scope == "system" and not os.environ.get("FAIRLEAD_HOME"):
        return SYSTEM_HOME
    return home_from_environment().path


def check_name(name: str) -> str:
    """The name, if it can be one of a unit and a file.

    Raises:
        CommandError: it has other signs than letters, digits, `-` and `_`.
    """
    if not name or len(name) > 64 or not all(sign.isalnum() or sign in "-_" for sign in name):
        raise CommandError(f"--name: letters, digits, - and _ (at most 64), got {name!r}", USAGE)
    return name


def this_program() -> list[str]:
    """How this very `fairlead` is started again.

    Raises:
        CommandError: it lies where it will not stay.
    """
    python = Path(sys.executable)
    script = python.with_name("fairlead")
    for part in (".cache/uv", "/uv/archive-v0", "/var/folders/", "/_npx/"):
        if part in f"{python}":
            raise CommandError(
                f"this fairlead lies in a cache ({python.parent}) that may be emptied: install it to stay "
                "(`uv tool install fairlead`, `pipx install fairlead`) and use that one",
                CONFIG,
            )
    return [str(script)] if script.exists() else [str(python), "-P", "-m", "fairlead.main"]


def search_path(scope: ServiceScope, program: list[str]) -> str:
    """PATH of the service: this program's folder, then what this shell has (a system service: the usual)."""
    folders = [str(Path(program[0]).parent)]
    source = SYSTEM_PATH if scope == "system" else os.environ.get("PATH", SYSTEM_PATH)
    for folder in source.split(":"):
        if folder.startswith("/") and folder not in folders and (scope == "system" or Path(folder).is_dir()):
            folders.append(folder)
    return ":".join(folders)


def require_reachable(program: list[str], user: str, uid: int | None, groups: set[int]) -> None:
    """That the user of the service may start the program; without `uid`: one that is yet to be made.

    Raises:
        CommandError: a folder on the way is closed to it.
    """
    for start in (Path(program[0]), Path(os.path.realpath(sys.executable))):
        for folder in [*reversed(start.parents), start]:
            info = folder.stat()
            bit = 0o100 if info.st_uid == uid else 0o010 if info.st_gid in groups else 0o001
            if uid != 0 and not info.st_mode & bit:
                raise CommandError(
                    f"user {user} cannot start {start}: {folder} is not accessible to it. Install "
                    "Fairlead where that user can read it (such as /opt/fairlead), or give --user",
                    FAILED,
                )
