"""The property list of a service of launchd, as text."""

import plistlib
from typing import Final

from fairlead_node.os_service.spec import ServiceSpec, label
from fairlead_node.os_service.unit import STOP_S

RESTART_AFTER_S: Final = 10  # launchd's own least


def plist_text(wanted: ServiceSpec) -> str:
    """The property list.

    launchd has no environment file and starts again whatever ended: `fairlead service run` reads the file,
    and ends with 0 (which stays ended) where starting again would not help.
    """
    start = ["service", "run", "--env-file", str(wanted.places.environment), "--", *wanted.arguments]
    log = str(wanted.places.log)
    content: dict[str, object] = {
        "Label": label(wanted.name),
        "ProgramArguments": [*wanted.program, *start],
        "EnvironmentVariables": {
            "FAIRLEAD_HOME": str(wanted.home),
            "FAIRLEAD_SERVICE": wanted.name,
            "PATH": wanted.search_path,
            "PYTHONUNBUFFERED": "1",
            "FAIRLEAD_SERVICE_VERSION": wanted.version,  # so that an upgrade changes this file
        },
        "WorkingDirectory": str(wanted.user_home),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": RESTART_AFTER_S,
        "ExitTimeOut": STOP_S,
        "AbandonProcessGroup": True,  # runners outlive the service on purpose
        "SoftResourceLimits": {"NumberOfFiles": 65536},
        "StandardOutPath": log,
        "StandardErrorPath": log,
        "Umask": 0o022,
    }
    if wanted.scope == "system":
        content["UserName"] = wanted.user
    return plistlib.dumps(content, sort_keys=False).decode()
