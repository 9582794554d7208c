"""Settings of one executor, from the environment."""

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fairlead_common.errors import InvalidInputError, WeakConfigurationError
from fairlead_common.ids import check_id


class ExecutorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where an executor works and how much it takes on.

    Fields:
        host: label of the machine: executors with the same label share workspaces and runners.
        executor: this executor; the same name after a restart, so that it finds its calls again.
        state: private folder of the host's runners and journals.
        workspace: default workspace. workspaces: folder of the named ones.
        capacity: calls at the same time.
    """

    host: str
    executor: str
    state: Path
    workspace: Path
    workspaces: Path
    capacity: int = 8


def config_from_environment(environ: Mapping[str, str] | None = None) -> ExecutorConfig:
    """The settings in `FAIRLEAD_HOME`, `_HOST`, `_EXECUTOR` (or `_WORKER`), `_WORKSPACE`, `_TOOLS_CAPACITY`.

    Raises:
        WeakConfigurationError: one of them does not fit.
    """
    env = os.environ if environ is None else environ
    home = Path(env.get("FAIRLEAD_HOME") or "~/.local/share/fairlead").expanduser().absolute()
    label = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0])[:48] or "host"
    try:
        host = check_id(env.get("FAIRLEAD_HOST") or label, "FAIRLEAD_HOST")
        executor = check_id(
            env.get("FAIRLEAD_EXECUTOR") or env.get("FAIRLEAD_WORKER") or f"executor-{os.getpid()}",
            "FAIRLEAD_EXECUTOR",
        )
        capacity = int(env.get("FAIRLEAD_TOOLS_CAPACITY") or 8)
    except (InvalidInputError, ValueError) as error:
        raise WeakConfigurationError(str(error)) from error
    if not 1 <= capacity <= 1000:
        raise WeakConfigurationError(f"FAIRLEAD_TOOLS_CAPACITY: must be from 1 to 1000, got {capacity}")
    return ExecutorConfig(
        host=host,
        executor=executor,
        state=home / "tools" / host,
        workspace=Path(env.get("FAIRLEAD_WORKSPACE") or home / "workspace").expanduser().absolute(),
        workspaces=home / "workspaces",
        capacity=capacity,
    )
