"""The scripted model without HTTP: a back end that runs in the process of the test.

What it says follows `script.py`, as that of the model on the wire does; `answers` goes before that.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from fairlead_agent.models.chat_dialects import PLAIN
from fairlead_agent.models.chat_format import encode_messages, encode_tools
from fairlead_agent.models.interface import (
    Finish,
    ModelError,
    ModelRequest,
    Piece,
    TextPiece,
    ToolCallPiece,
)
from fairlead_common.protocol.content import Usage
from tests.support.script import Message, decide, problems

Answer = ModelError | list[Piece] | Callable[[list[Message]], list[Piece]]


def text(words: str, **finish: Any) -> list[Piece]:
    """A reply of these words."""
    return [TextPiece(words), Finish(**{"stop_reason": "stop", "usage": _USAGE, **finish})]


_USAGE = Usage(input_tokens=10, output_tokens=5)


class MemoryModel:
    """A back end. `requests` (as they are sent) and `asked` are what it was asked, `problems` what a strict
    provider would refuse.
    """

    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.requests: list[list[Message]] = []
        self.asked: list[ModelRequest] = []
        self.tools: list[bytes] = []  # that each request offered, as a provider is sent them
        self.problems: list[str] = []
        self.away_until_s = 0.0  # of the loop's time; until then all requests fail
        self.away: set[str] = set()  # models of which all requests fail
        self.pause_s = 0.0  # before each piece of a reply
        self.streaming = asyncio.Event()
        self._failed: Counter[tuple[str, str]] = Counter()

    async def check(self, model: str) -> str:
        """See `Model.check`."""
        return "scripted"

    async def close(self) -> None:
        """Nothing to let go of."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[Piece]]:
        """See `Model.stream`."""
        messages = msgspec.json.decode(b"[" + await encode_messages(request, PLAIN) + b"]")
        self.requests.append(messages)
        self.asked.append(request)
        self.tools.append(encode_tools(request.tools))
        self.problems += problems({"messages": messages})
        if asyncio.get_running_loop().time() < self.away_until_s or request.model in self.away:
            raise ModelError("retryable", "scripted: away")
        answer = self.answers.popleft() if self.answers else self._scripted
        if isinstance(answer, ModelError):
            raise answer
        self.streaming.set()
        for piece in answer(messages) if callable(answer) else answer:
            await asyncio.sleep(self.pause_s)
            yield [piece]

    def _scripted(self, messages: list[Message]) -> list[Piece]:
        move = decide(messages)
        for trouble, times in move.plan.trouble.items():
            if self._failed[move.plan.name, trouble] < times:
                self._failed[move.plan.name, trouble] += 1
                raise ModelError("overflow" if trouble == "overflow" else "retryable", f"scripted: {trouble}")
        pieces: list[Piece] = [TextPiece(word) for word in move.text.split(" ") if word]
        pieces = [TextPiece(move.text)] if move.text and not self.pause_s else pieces
        for index, call in enumerate(move.calls):
            pieces.append(ToolCallPiece(index, call.arguments, call.id, call.name))
        cut = move.plan.finish == "length" and not move.calls
        return [*pieces, Finish("length" if cut else "tool_use" if move.calls else "stop", _USAGE)]
