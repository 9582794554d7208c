"""How models are called, and the names that they can have."""

from typing import Annotated, Final

import msgspec

from fairlead_common.config.part import Part, Positive
from fairlead_common.errors import InvalidInputError

BACK_ENDS: Final = ("demo", "openai", "litellm")


class ModelsConfig(Part, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models are called.

    Fields:
        default: of agents that name none.
        first_token_timeout_s: without any byte of the answer, or between two, for that long.
        retries: attempts after the first, for errors that may pass; waits 0.5 s, 1 s, 2 s ... 30 s,
            or as long as the provider asks for, at most 120 s.
        without_images: names or patterns (`openai/deepseek-*`) of models that take no images; they are told
            of an image instead.
        demo_delay_s: pause of the demo model between words.
    """

    default: str = "demo"
    first_token_timeout_s: Positive = 120.0
    retries: Annotated[int, msgspec.Meta(ge=0, le=20)] = 4
    without_images: list[str] = []
    demo_delay_s: Annotated[float, msgspec.Meta(ge=0, le=5)] = 0.012


def parse_model(name: str, field: str = "model") -> tuple[str, str]:
    """The back end that a model's name means, and the name that it knows the model by.

    Raises:
        InvalidInputError: the name has none of the known forms.
    """
    backend, _, model = name.partition("/")
    if backend not in BACK_ENDS or (backend != "demo" and not model):
        raise InvalidInputError(
            field, f"must be demo, openai/<model> or litellm/<provider>/<model>, got {name!r}"
        )
    return backend, model
