"""The parts of a session's state: messages, and the open run."""

from dataclasses import dataclass, field
from typing import Final, Literal

from fairlead_common.protocol.content import Message, Usage, UserMessage

LeftOut = Literal["all", "images"]  # of a message that the model could not take

HOOK_SENDER: Final = "hook:"  # before the name of the hook that added a message


@dataclass(slots=True)
class Item:
    """One message of the conversation. All messages of a `hook_context` have the id of that entry."""

    entry_id: str
    message: Message


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
    heartbeat: bool = False  # no one asked
    quiet: bool = False  # and the answer was that all is well
    lines: int = 0  # system events that were said in it
    first_item: int = 0  # where the heartbeat begins in the conversation
    before: tuple[int, str, int] = (0, "", 0)  # when people last saw something new, what, and its sequence


def is_from_hook(message: Message) -> bool:
    """Whether a hook added it: a user message for the model, which no person and no schedule sent."""
    return (
        isinstance(message, UserMessage)
        and message.source == "system"
        and (message.sender or "").startswith(HOOK_SENDER)
    )
