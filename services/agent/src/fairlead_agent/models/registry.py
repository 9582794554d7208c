"""Which back end a model name means."""

import os
from collections.abc import Mapping

from fairlead_agent.models.demo import DemoModel
from fairlead_agent.models.interface import Model
from fairlead_agent.models.litellm_backend import LiteLLM
from fairlead_agent.models.openai_compatible import OpenAICompatible
from fairlead_common.config import parse_model
from fairlead_common.live_config import LiveConfig

OPENAI_URL = "https://api.openai.com/v1"


class Registry:
    """The back ends of this process, made when first needed."""

    def __init__(self, config: LiveConfig, environ: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._environ = os.environ if environ is None else environ
        self._made: dict[str, Model] = {}

    def resolve(self, name: str) -> tuple[Model, str]:
        """The back end for a model name, and the name that it knows the model by.

        Raises:
            InvalidInputError: the name has none of the known forms.
        """
        backend, model = parse_model(name)
        if backend not in self._made:
            self._made[backend] = self._make(backend)
        return self._made[backend], model

    def _make(self, backend: str) -> Model:
        def silence_s() -> float:
            return self._config.current.models.first_token_timeout_s

        if backend == "demo":
            return DemoModel(lambda: self._config.current.models.demo_delay_s)
        if backend == "litellm":
            return LiteLLM(silence_s=silence_s)
        return OpenAICompatible(
            self._environ.get("OPENAI_BASE_URL") or OPENAI_URL,
            self._environ.get("OPENAI_API_KEY"),
            silence_s=silence_s,
        )

    async def warm_up(self) -> None:
        """Import what the configured models need, so that the first prompt does not wait for it."""
        names = {profile.model for profile in self._config.current.agents.values()}
        if any(name.startswith("litellm/") for name in names | {self._config.current.models.default}):
            backend, _ = self.resolve("litellm/any/model")
            if isinstance(backend, LiteLLM):
                await backend.warm_up()

    async def close(self) -> None:
        """Let go of all connections."""
        for model in self._made.values():
            await model.close()
