"""How models are called, and the names that they can have."""

from collections.abc import Collection
from typing import Annotated, Final

import msgspec

from fairlead_common.config.part import ConfigPart, Extensions, Positive
from fairlead_common.errors import InvalidInputError

BACK_ENDS: Final = ("demo", "openai", "litellm")
OPENAI_URL: Final = "https://api.openai.com/v1"
# Where providers are that no variable places elsewhere.
PROVIDER_HOSTS: Final = {
    "anthropic": "api.anthropic.com", "openai": "api.openai.com", "openrouter": "openrouter.ai",
    "gemini": "generativelanguage.googleapis.com", "mistral": "api.mistral.ai", "groq": "api.groq.com",
}  # fmt: skip


class ModelsConfig(ConfigPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models are called.

    Fields:
        default: of agents that name none.
        first_token_timeout_s: without any byte of the answer, or between two, for that long.
        retries: attempts after the first, for errors that may pass; waits 0.5 s, 1 s, 2 s ... 30 s,
            or as long as the provider asks for, at most 120 s.
        without_images: names or patterns (`openai/deepseek-*`) of models that take no images; they are told
            of an image instead.
        back_ends: back ends of other packages (entry points of the group `fairlead.models`), and their
            settings; `<name>/<model>` is a model of one.
        demo_delay_s: pause of the demo model between words.
    """

    default: str = "demo"
    first_token_timeout_s: Positive = 120.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 4
    without_images: list[str] = []
    back_ends: Extensions = {}
    demo_delay_s: Annotated[float, msgspec.Meta(ge=0, le=5)] = 0.012


def parse_model(name: str, field: str = "model", back_ends: Collection[str] = ()) -> tuple[str, str]:
    """The back end that a model's name means, and the name that it knows the model by.

    Args:
        back_ends: those of other packages that are configured.

    Raises:
        InvalidInputError: the name has none of the known forms.
    """
    backend, _, model = name.partition("/")
    if backend not in (*BACK_ENDS, *back_ends) or (backend != "demo" and not model):
        forms = ["demo", "openai/<model>", *(f"{each}/<model>" for each in sorted(back_ends))]
        raise InvalidInputError(
            field, f"must be {', '.join(forms)} or litellm/<provider>/<model>, got {name!r}"
        )
    return backend, model
