"""The new messages of a request, as one prompt: what was said before them is in the session."""

from typing import Final

from fairlead_common.bus.objects import Objects
from fairlead_common.errors import InvalidInputError
from fairlead_common.protocol.messages import MAX_ATTACHMENTS, MAX_TEXT_CHARS, UserInput
from fairlead_gateway.openai_api.history import SYSTEM_ROLES, History
from fairlead_gateway.openai_api.parts import SentFile, new_parts, result_parts, stored
from fairlead_gateway.openai_api.request import ChatMessage

# A request may end with an answer, to have it continued, or with results of tools that its program ran.
CONTINUE_ANSWER: Final = (
    "Continue your last message exactly where it stopped, without repeating anything of it."
)
CONTINUE_RESULTS: Final = "Go on with the results of the tools above."
ONLY_FILES: Final = "(see what is attached)"


def check_sent(history: History) -> None:
    """Refuse what could not be stored, before the request has a place in its conversation.

    Raises:
        InvalidInputError: a new message or a result of a tool has parts that are not supported.
    """
    for message in history.new:
        new_parts(message)
    for message in history.results:
        result_parts(message)


async def prompt_of(objects: Objects, history: History, sender: str) -> UserInput:
    """The new messages; or what the agent is told when there are none.

    Raises:
        InvalidInputError: there is nothing in them, or they have parts that are not supported.
    """
    if not history.new:
        ends_with_answer = history.earlier[-1].role == "assistant"
        return UserInput(text=CONTINUE_ANSWER if ends_with_answer else CONTINUE_RESULTS, sender=sender)
    texts: list[str] = []
    files: list[SentFile] = []
    for message in history.new:
        text, found = new_parts(message)
        files += found
        if text.strip():
            texts.append(_told(message, text))
    place = f"messages[{history.count - 1}].content"
    if not texts and not files:
        raise InvalidInputError(place, "must not be empty")
    if len(files) > MAX_ATTACHMENTS:
        raise InvalidInputError(place, f"at most {MAX_ATTACHMENTS} files and images, got {len(files)}")
    whole = "\n\n".join(texts) or ONLY_FILES
    if len(whole) > MAX_TEXT_CHARS:
        raise InvalidInputError("messages", f"at most {MAX_TEXT_CHARS} characters, got {len(whole)}")
    return UserInput(text=whole, attachments=[await stored(objects, file) for file in files], sender=sender)


def told_by_program(text: str) -> str:
    """Instructions that a program gives in the midst of a conversation."""
    return f"<client_instructions>\n{text}\n</client_instructions>"


def _told(message: ChatMessage, text: str) -> str:
    return told_by_program(text) if message.role in SYSTEM_ROLES else text
