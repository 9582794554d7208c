"""Requests to a model beside the conversation of a session, such as for a summary: words in, words out."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing

from fairlead_agent.budget.budget import Spend
from fairlead_agent.models.interface import Finish, ModelError, ModelRequest, TextPiece
from fairlead_agent.models.mending import MAX_MENDS, mended
from fairlead_agent.models.pricing import priced
from fairlead_agent.models.registry import Registry
from fairlead_agent.turn.streamed_request import back_end_errors
from fairlead_common.protocol.content import Usage

Paid = Callable[[ModelRequest], AbstractAsyncContextManager[tuple[Spend, Callable[[Finish], None]]]]


class SideModel:
    """One model that is asked, once or more often, for the same purpose.

    Fields:
        name: of the model. usage: of all requests that were answered.

    Args:
        paid: reserves for a request, see `Budget.spend`.
    """

    def __init__(self, registry: Registry, name: str, paid: Paid) -> None:
        self.name = name
        self.usage = Usage()
        self._registry = registry
        self._paid = paid

    async def words(self, request: ModelRequest) -> str:
        """The words of the reply, without white space around them.

        Raises:
            ModelError: the model fails, or its reply is not complete.
            BudgetReachedError: a limit is reached; nothing was sent.
        """
        mends = self._registry.mending.of(self.name)
        for left in reversed(range(MAX_MENDS + 1)):
            try:
                with back_end_errors(self.name):
                    async with self._paid(request) as (spend, ended):
                        return await self._read(mended(spend.request, mends), ended)
            except ModelError as error:
                learnt = self._registry.mending.learnt(self.name, request, mends, error)
                if learnt is None or not left:
                    raise
                mends = learnt
        raise AssertionError("the last attempt returns or raises")

    async def _read(self, request: ModelRequest, ended: Callable[[Finish], None]) -> str:
        model, _ = self._registry.resolve(self.name)
        words: list[str] = []
        finish: Finish | None = None
        async with aclosing(model.stream(request)) as stream:  # type: ignore[type-var] # a generator in all back ends
            async for pieces in stream:
                for piece in pieces:
                    if isinstance(piece, TextPiece):
                        words.append(piece.text)
                    elif isinstance(piece, Finish):
                        finish = piece
        if finish is None:
            raise ModelError("retryable", "the reply broke off before its end")
        ended(finish)
        self.usage = self.usage.plus(priced(finish, self._registry.facts(self.name))[0])
        if finish.failure or finish.stop_reason == "length":
            raise ModelError("fatal", f"the reply is not complete: {finish.failure or finish.stop_reason}")
        return "".join(words).strip()
