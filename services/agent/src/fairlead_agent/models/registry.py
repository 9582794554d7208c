"""Which back end a model name means."""

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, runtime_checkable

import structlog

from fairlead_agent.models.interface import BackEndSetup, ModelBackend
from fairlead_common.config import parse_model
from fairlead_common.errors import InvalidInputError
from fairlead_common.service import extensions
from fairlead_common.service.extensions import ExtensionError
from fairlead_common.service.live_config import LiveConfig

log = structlog.get_logger()

BUILT_IN: Final = {
    "demo": "fairlead_agent.models.demo:make",
    "openai": "fairlead_agent.models.openai_compatible:make",
    "litellm": "fairlead_agent.models.litellm_backend:make",
}
_METHODS: Final = ("stream", "check", "close")


@runtime_checkable
class WarmedUp(Protocol):
    """A back end that takes long to import."""

    async def warm_up(self) -> None:
        """Import it now."""


class Registry:
    """The back ends of this process, made when first needed."""

    def __init__(self, config: LiveConfig, environ: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._environ = os.environ if environ is None else environ
        self._made: dict[str, ModelBackend] = {}

    def resolve(self, name: str) -> tuple[ModelBackend, str]:
        """The back end for a model name, and the name that it knows the model by.

        Raises:
            InvalidInputError: the name has none of the known forms, or its back end cannot be loaded.
        """
        backend, model = parse_model(name, back_ends=self._config.current.models.back_ends)
        if backend not in self._made:
            self._made[backend] = self._make(backend)
        return self._made[backend], model

    def _make(self, backend: str) -> ModelBackend:
        setup = BackEndSetup(
            settings=self._config.current.models.back_ends.get(backend, {}),
            environ=self._environ,
            silence_s=lambda: self._config.current.models.first_token_timeout_s,
            demo_delay_s=lambda: self._config.current.models.demo_delay_s,
        )
        try:
            made: ModelBackend = extensions.make(extensions.MODELS, backend, setup, BUILT_IN)
            if missing := [each for each in _METHODS if not callable(getattr(made, each, None))]:
                what = f"extension {backend!r} of the group {extensions.MODELS}"
                raise ExtensionError(f"{what}: what its factory returns lacks {', '.join(missing)}")
        except ExtensionError as error:
            log.error("extension_failed", group=extensions.MODELS, extension=backend, error=str(error))
            raise InvalidInputError("model", str(error)) from error
        return made

    async def warm_up(self) -> None:
        """Load what the configured models need, so that the first prompt does not wait for it."""
        config = self._config.current
        names = {profile.model for profile in config.agents.values()} | {config.models.default}
        for backend in (*config.models.back_ends, "litellm"):
            if backend == "litellm" and not any(name.startswith("litellm/") for name in names):
                continue
            try:
                made, _ = self.resolve(f"{backend}/any/model")
            except InvalidInputError:
                continue  # it is logged, and the doctor is told when asked
            if isinstance(made, WarmedUp):
                await _guarded(backend, made.warm_up)

    async def close(self) -> None:
        """Let go of all connections."""
        for name, model in self._made.items():
            await _guarded(name, model.close)


async def _guarded(backend: str, act: Callable[[], Awaitable[None]]) -> None:
    """Have a back end do what no request depends on: its failure ends no agent."""
    try:
        await act()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is
        why = f"{type(error).__name__}: {error}"
        log.error("extension_failed", group=extensions.MODELS, extension=backend, error=why)
