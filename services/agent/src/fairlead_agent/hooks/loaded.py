"""The hooks that the configuration names, loaded when they are first needed, each asked within its time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import structlog

from fairlead_agent.hooks.interface import Hooks
from fairlead_common.config.hooks import HookConfig
from fairlead_common.errors import FairleadError
from fairlead_common.service import extensions
from fairlead_common.service.extensions import ExtensionError
from fairlead_common.service.live_config import LiveConfig

log = structlog.get_logger()

BEFORE_TOOL_CALL: Final = "before_tool_call"
CONTEXT: Final = "context"
AFTER_TOOL_RESULT: Final = "after_tool_result"
ON_RUN_END: Final = "on_run_end"


class HookFailedError(FairleadError):
    """A hook could not be loaded, failed, was late or gave no valid answer. The text names it and why."""


class NamedHook(NamedTuple):
    """A configured hook."""

    name: str
    config: HookConfig
    hooks: Hooks | None  # None: it could not be loaded
    problem: str = ""

    async def ask(self, method: str, argument: object) -> Any:
        """What the hook answers.

        Raises:
            HookFailedError: it has no answer.
        """
        if self.hooks is None:
            raise HookFailedError(f"hook {self.name}: {self.problem}")
        called: Callable[[object], Awaitable[Any]] = getattr(self.hooks, method)
        try:
            async with asyncio.timeout(self.config.timeout_s):
                return await called(argument)
        except TimeoutError as error:
            text = f"hook {self.name}: {method} took longer than {self.config.timeout_s:g} s (timeout_s)"
            raise HookFailedError(text) from error
        except Exception as error:
            text = f"hook {self.name}: {method} failed: {type(error).__name__}: {error}"
            raise HookFailedError(text[:500]) from error


class LoadedHooks:
    """The hooks of this process."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self._made: dict[
            str, tuple[dict[str, object], Hooks | None, str]
        ] = {}  # by name: settings, hook, problem

    def that(self, method: str) -> list[NamedHook]:
        """The hooks that have this method, in the order of the configuration.

        One that cannot be loaded counts as having `before_tool_call`: nobody knows what it would deny.
        """
        if not self._config.current.hooks:
            return []
        found = [self._named(name, config) for name, config in self._config.current.hooks.items()]
        return [each for each in found if _has(each, method)]

    def _named(self, name: str, config: HookConfig) -> NamedHook:
        made = self._made.get(name)
        if made is None or made[0] != config.settings:
            made = self._made[name] = (config.settings, *self._make(name, config))
        return NamedHook(name, config, made[1], made[2])

    def _make(self, name: str, config: HookConfig) -> tuple[Hooks | None, str]:
        try:
            return extensions.make(extensions.HOOKS, name, config.settings), ""
        except ExtensionError as error:
            log.error("extension_failed", group=extensions.HOOKS, extension=name, error=str(error))
            return None, str(error)


def _has(hook: NamedHook, method: str) -> bool:
    if hook.hooks is None:
        return method == BEFORE_TOOL_CALL
    own = getattr(type(hook.hooks), method, None)
    return own is not None and own is not getattr(Hooks, method)
