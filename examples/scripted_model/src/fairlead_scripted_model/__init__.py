"""A model back end: it repeats what it is told, and calls a tool for `call <tool> <arguments as JSON>`."""

from collections.abc import AsyncIterator

from fairlead_agent.models.interface import (
    BackEndSetup,
    Finish,
    ModelRequest,
    Piece,
    TextPiece,
    ToolCallPiece,
)
from fairlead_common.protocol.content import Usage, UserMessage, words_of


class ScriptedModel:
    """The back end `scripted`; its settings are `models.back_ends.scripted`."""

    def __init__(self, setup: BackEndSetup) -> None:
        self._greeting = str(setup.settings.get("greeting", "You said"))

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[Piece]]:
        """Pieces as they arrive; a `Finish` is last."""
        last = request.messages[-1]
        text = words_of(last)
        if isinstance(last, UserMessage) and text.startswith("call "):
            _, name, arguments = text.split(" ", 2)
            yield [ToolCallPiece(0, arguments, "call-1", name)]
            yield [Finish("tool_use", Usage(input_tokens=len(text), output_tokens=1))]
            return
        yield [TextPiece(f"{self._greeting}: {text}")]
        yield [Finish("stop", Usage(input_tokens=len(text), output_tokens=len(text)))]

    async def check(self, model: str) -> str:
        """What the doctor shows of a model. Raise a `ModelError` if it cannot be asked."""
        return f"{model}: repeats what it is told"

    async def close(self) -> None:
        """Nothing is open."""
