"""The parts of a session's state: messages, their encoding for a model, and the open run."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from fairlead_common.content import Message, Usage

LeftOut = Literal["all", "images"]  # of a message that the model could not take


@dataclass(slots=True)
class Item:
    """One message of the conversation."""

    entry_id: str
    message: Message


class Form(NamedTuple):
    """What the encoding of a conversation depends on beside its messages.

    Fields:
        family: of the models that it is for (see `context.family`); empty: of those that wrote it.
        images: whether they take any.
        first: index of the first message that is shown.
    """

    family: str = ""
    images: bool = True
    first: int = 0


@dataclass(slots=True)
class Wire:
    """The conversation as a model's wire has it: encoded messages, joined by commas.

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


@dataclass(slots=True)
class Run:
    """The open run."""

    run_id: str
    started_ms: int
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    aborting: bool = False
    abort_reason: str = ""
    spoken: bool = False  # something was said in it, or in the run that it resumes
    heartbeat: bool = False  # nobody asked
    quiet: bool = False  # and the answer was that all is well
    lines: int = 0  # system events that were said in it
    first_item: int = 0  # where the heartbeat begins in the conversation, and how the wire was there
    wire: "Wire | None" = None
    before: tuple[int, str, int] = (0, "", 0)  # when people last saw something new, what, and its sequence
