"""The conversation as a model's wire has it, kept beside the state so that each message is encoded once."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Form(NamedTuple):
    """What the encoding of a conversation depends on beside its messages.

    Fields:
        family: of the models that it is for (see `context.family`); empty: of those that wrote it.
        images: whether they take any.
        first: index of the first message that is shown.
        rewrites: of the state (see `SessionState`): what was encoded before a rewrite is void.
    """

    family: str = ""
    images: bool = True
    first: int = 0
    rewrites: int = 0


@dataclass(slots=True)
class Wire:
    """Encoded messages, joined by commas.

    Fields:
        form: for which models it is encoded.
        ids: by call, the id that it has on this wire.
        count: items that are in it, or come before the first one that is shown.
    """

    form: Form = field(default_factory=lambda: Form())
    ids: dict[str, str] = field(default_factory=dict)
    joined: bytes = b""
    count: int = 0
    tokens: int = 0
