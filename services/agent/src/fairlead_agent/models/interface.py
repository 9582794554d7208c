"""What every model back end takes and gives."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from fairlead_common.errors import FairleadError
from fairlead_common.protocol.content import StopReason, Usage
from fairlead_common.protocol.messages import ToolSpec


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Fields:
        model: name without the prefix of the back end.
        messages: the conversation in OpenAI's chat format, system prompt first: the messages as JSON,
            joined by commas.
        tools: what may be called; `tools_wire` is the same, encoded once as OpenAI's `tools` array.
    """

    model: str
    messages: bytes
    tools: list[ToolSpec]
    tools_wire: bytes
    thinking: str = "off"
    temperature: float | None = None
    max_output_tokens: int | None = None

    def decoded(self) -> list[dict[str, Any]]:
        """The messages as objects."""
        return msgspec.json.decode(b"[" + self.messages + b"]", type=list[dict[str, Any]])


# Begins the user message that carries the images of tool results: no provider takes them in role `tool`.
RESULT_IMAGES: Final = "Images of the tool results above:"

Failure = Literal["", "content_filter", "refusal", "reply_paused"]


class TextPiece(msgspec.Struct, frozen=True):
    """More words."""

    text: str


class ThinkingPiece(msgspec.Struct, frozen=True):
    """More thought. A signature comes once, with the last piece of a block.

    Fields:
        redacted: a whole block that the provider encrypted; `text` is empty.
    """

    text: str
    signature: str | None = None
    redacted: str | None = None


class ToolCallPiece(msgspec.Struct, frozen=True):
    """More of a call; `id` and `name` come with its first piece.

    Fields:
        index: of the call in the reply, where the provider sends one. Some send none, or the same for all.
    """

    index: int | None
    arguments: str = ""
    id: str | None = None
    name: str | None = None


class Finish(msgspec.Struct, frozen=True):
    """The end of the message.

    Fields:
        failure: why the reply is not what the model was asked for, though the request succeeded.
    """

    stop_reason: StopReason
    usage: Usage = Usage()
    failure: Failure = ""


Piece = TextPiece | ThinkingPiece | ToolCallPiece | Finish

Refused = Literal["", "input", "images"]
ErrorKind = Literal["retryable", "overflow", "auth", "fatal"]

_CODES: Final[dict[ErrorKind, str]] = {
    "retryable": "model_unavailable",
    "overflow": "context_length_exceeded",
    "auth": "model_auth",
    "fatal": "model_request_refused",
}


class ModelError(FairleadError):
    """The provider failed or refused.

    Fields:
        kind: `retryable` may pass; `overflow`: the conversation is too long; `auth`: the key;
            `fatal`: the same request will fail again.
        retry_after_s: what the provider asked for, if it did.
        code: the reason for programs, one of those of `RunEndEntry.error_code`; by default that of the kind.
        refused: what of the request the provider will never take; empty: nothing in particular.
    """

    def __init__(
        self,
        kind: ErrorKind,
        text: str,
        retry_after_s: float | None = None,
        *,
        code: str = "",
        refused: Refused = "",
    ) -> None:
        super().__init__(text)
        self.kind: ErrorKind = kind
        self.code = code or _CODES[kind]
        self.refused: Refused = "input" if kind == "overflow" else refused
        self.retry_after_s = retry_after_s


class ModelBackend(Protocol):
    """A back end."""

    def stream(self, request: ModelRequest) -> AsyncIterator[list[Piece]]:
        """Pieces as they arrive, several at a time where they arrive together; a `Finish` is last.

        Raises:
            ModelError: the provider failed; pieces that came before it do not count.
        """

    async def check(self, model: str) -> str:
        """What says that the provider would take a request for this model, without sending one.

        Raises:
            ModelError: it would not; `auth`: the key is missing or refused.
        """

    async def close(self) -> None:
        """Let go of connections."""


class BackEndSetup(NamedTuple):
    """What the factory of a back end is given.

    Fields:
        settings: `models.back_ends.<name>` of the configuration; empty for a built-in one.
        environ: of the agent service, which has the keys.
        silence_s: seconds without any byte of an answer after which a request is given up, as configured now.
        demo_delay_s: pause of the demo model between two words, as configured now.
    """

    settings: Mapping[str, object]
    environ: Mapping[str, str]
    silence_s: Callable[[], float]
    demo_delay_s: Callable[[], float]
