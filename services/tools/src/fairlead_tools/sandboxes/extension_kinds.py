"""Sandboxes of other packages: entry points of the group `fairlead.sandboxes` that the configuration has."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from fairlead_common.protocol.messages import SandboxAttributes
from fairlead_common.service import extensions
from fairlead_common.service.extensions import ExtensionError
from fairlead_tools.sandboxes.sandbox import Sandbox

log = structlog.get_logger()

_METHODS = ("attributes", "unavailable", "channel", "end", "keep", "close")


class SandboxSetup(NamedTuple):
    """What the factory of a kind is given.

    Fields:
        name: that it has to have, the one of its entry point.
        settings: `tools.sandboxes.<name>` of the configuration, as it was when the executor started.
        state: private folder of this host's executors. home: all of Fairlead's own files.
        tasks: for its channels.
    """

    name: str
    settings: Mapping[str, object]
    state: Path
    home: Path
    tasks: asyncio.TaskGroup


def extension_kinds(
    configured: Mapping[str, Mapping[str, object]], state: Path, home: Path, tasks: asyncio.TaskGroup
) -> tuple[list[Sandbox], list[str]]:
    """The kinds that the configuration names, and a sentence about each that cannot be had."""
    kinds: list[Sandbox] = []
    problems: list[str] = []
    for name, settings in configured.items():
        try:
            kinds.append(_made(SandboxSetup(name, settings, state, home, tasks)))
        except ExtensionError as error:
            problems.append(f"{error}; sandbox {name!r} is not offered")
            log.error("extension_failed", group=extensions.SANDBOXES, extension=name, error=str(error))
    return kinds, problems


def _made(setup: SandboxSetup) -> Sandbox:
    made: Sandbox = extensions.make(extensions.SANDBOXES, setup.name, setup)
    what = f"extension {setup.name!r} of the group {extensions.SANDBOXES}"
    if missing := [each for each in _METHODS if not callable(getattr(made, each, None))]:
        raise ExtensionError(f"{what}: what its factory returns lacks {', '.join(missing)}")
    if (named := getattr(made, "name", None)) != setup.name:
        raise ExtensionError(f"{what}: its sandbox must have this name, got {named!r}")
    try:
        told = made.attributes()
    except Exception as error:
        raise ExtensionError(f"{what}: its attributes failed: {type(error).__name__}: {error}") from error
    if not isinstance(told, SandboxAttributes):
        raise ExtensionError(f"{what}: its attributes must be SandboxAttributes, got {type(told).__name__}")
    return made
