"""The body of a chat completion, and what of it is refused because it would not be honoured."""

from typing import Annotated, Any, Final

import msgspec

from fairlead_common.errors import InvalidInputError
from fairlead_gateway.http.problems import Problem


class ImageUrl(msgspec.Struct, frozen=True):
    """A picture, as a `data:` URL."""

    url: str


class File(msgspec.Struct, frozen=True):
    """A file. `file_data`: base64, or a `data:` URL; `file_id`: of OpenAI's own store, which is not here."""

    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None


class InputAudio(msgspec.Struct, frozen=True):
    """A recording. `data`: base64. `format`: `wav`, `mp3`."""

    data: str | None = None
    format: str | None = None


class Part(msgspec.Struct, frozen=True):
    """A part of a message. `refusal`: the words of a part of this type."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageUrl | None = None
    file: File | None = None
    input_audio: InputAudio | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of the conversation as the client has it."""

    role: str
    content: str | list[Part] | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream ends with."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """Body of a chat completion. What is not named here is ignored: clients send much.

    Fields:
        max_tokens, max_completion_tokens: of side tasks; in other requests they have no effect.
        tools, tool_choice, functions, function_call, response_format, n: of any form; `check_supported`
            says which of them is not supported.
    """

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=10_000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    n: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None


_ADVICE: Final = {
    "tools": "the agent calls tools of its own (docs/clients.md); leave it out or send an empty list",
    "functions": "the agent calls tools of its own (docs/clients.md); leave it out or send an empty list",
    "tool_choice": "must be `auto`, `none` or absent",
    "function_call": "must be `auto`, `none` or absent",
    "response_format": "must be of the type `text` or absent",
    "n": "must be 1 or absent",
}


def check_supported(body: ChatRequest) -> None:
    """Refuse what the client would otherwise take for done.

    Raises:
        Problem: 400 `unsupported_parameter` with the field.
        InvalidInputError: the conversation does not end with a message to answer.
    """
    form = body.response_format
    unsupported = {
        "tools": body.tools not in (None, []),
        "functions": body.functions not in (None, []),
        "tool_choice": body.tool_choice not in (None, "auto", "none"),
        "function_call": body.function_call not in (None, "auto", "none"),
        "response_format": form is not None and not (isinstance(form, dict) and form.get("type") == "text"),
        "n": body.n is not None and (isinstance(body.n, bool) or body.n != 1),
    }
    for field, refused in unsupported.items():
        if refused:
            got = _shown(getattr(body, field))
            raise Problem(
                400,
                f"{field}: not supported; {_ADVICE[field]}; got {got}",
                code="unsupported_parameter",
                field=field,
            )
    last = body.messages[-1]
    if last.role != "user":
        raise InvalidInputError(
            "messages",
            f"the last message must have the role `user`, got {last.role[:80]!r}: the agent answers that one",
        )


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"a list of length {len(value)}"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else f"{text[:80]}... ({len(text)} characters)"
