"""A scripted model that also writes summaries: of all that it is given it keeps the facts, and no more."""

import re
from collections.abc import AsyncIterator, Callable

from fairlead_agent.compaction.summariser import SYSTEM
from fairlead_agent.models.interface import ModelError, ModelRequest, Piece
from fairlead_agent.tools.tool_lists import encode_list
from fairlead_agent.turn.context import BYTES_PER_TOKEN, shown_tokens
from fairlead_common.protocol.content import words_of
from tests.support.memory_model import MemoryModel, text

FACT = re.compile(r"FACT-[A-Z0-9]+")


class SummarisingModel(MemoryModel):
    """Fields:
    window: tokens of the largest request that it takes; larger ones are in `too_large`, and refused.
    summarised: what it was given to summarise, `by` which models. write: what it answers to that.
    """

    def __init__(self, window: int = 10**9) -> None:
        super().__init__()
        self.window = window
        self.too_large: list[int] = []
        self.summarised: list[str] = []
        self.by: list[str] = []
        self.write: Callable[[str], list[Piece]] = facts_of

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[Piece]]:
        """See `Model.stream`."""
        if (size := tokens_of(request)) > self.window:
            self.too_large.append(size)
            raise ModelError("overflow", f"prompt is too long: {size} tokens > {self.window} maximum")
        if request.system != SYSTEM:
            async for pieces in super().stream(request):
                yield pieces
            return
        self.by.append(request.model)
        if request.model in self.away:
            raise ModelError("retryable", "scripted: away")
        given = words_of(request.messages[0])
        self.summarised.append(given)
        for piece in self.write(given):
            yield [piece]


def facts_of(given: str) -> list[Piece]:
    """A summary of the facts."""
    found = dict.fromkeys(FACT.findall(given))
    return text("## Identifiers and promises\n" + "\n".join(found))


def tokens_of(request: ModelRequest) -> int:
    """About how many tokens a request has."""
    tools = len(encode_list(list(request.tools))[1]) if request.tools else 0
    return (
        sum(map(shown_tokens, request.messages)) + (len(request.system.encode()) + tools) // BYTES_PER_TOKEN
    )
