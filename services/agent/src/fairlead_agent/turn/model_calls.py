"""Calls of models that are no turns of a session (summaries, titles, plain calls): replies as a whole.

They are sent as turns are: the next model where one fails, the next key where one is refused, without what a
model refuses, again where that may help; and what each of them costs is counted.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, TypeVar

import msgspec
import structlog

from fairlead_agent.budget.payment import Pay, Payment
from fairlead_agent.models.interface import Finish, ModelBackend, ModelError, ModelRequest, TextPiece
from fairlead_agent.models.pricing import priced
from fairlead_agent.models.registry import Registry
from fairlead_agent.models.sending import pause_s, send
from fairlead_agent.turn.fallbacks import may_pass_on, to_tell
from fairlead_agent.turn.streamed_reply import BROKEN_OFF, FAILURES, readable
from fairlead_agent.turn.streamed_request import back_end_errors
from fairlead_common.protocol.content import Usage

log = structlog.get_logger()

T = TypeVar("T")

QUICK_RETRIES: Final = 1  # of a model behind which there is another one


class WholeReply(NamedTuple):
    """The words of a reply, without thoughts and calls.

    Fields:
        model: that wrote it. usage: with its cost.
        counted: whether the usage is recorded; otherwise the caller has to do it.
    """

    text: str
    model: str
    finish: Finish
    usage: Usage
    counted: bool


class ModelCalls:
    """Calls of models on behalf of one session, or of none.

    Args:
        pay: reserves and settles; see `Budget.spend` and `spend_plain`.
        session: whose key is used, where a provider has several; any name that stays the same.
        retries: of a call that failed in a way that may pass: `models.retries`.
    """

    def __init__(self, registry: Registry, pay: Pay, session: str, retries: int) -> None:
        self._registry = registry
        self._pay = pay
        self._session = session
        self._retries = retries

    async def first(
        self, models: Sequence[str], request: Callable[[str], ModelRequest], within_s: float
    ) -> WholeReply:
        """The reply of the first of the models that answers.

        Args:
            models: names in order; see `fallbacks.models_of`.
            request: what the model of this name is asked; `ModelRequest.model` is filled in.
            within_s: seconds for all of them. Each has to begin within its part of what is left.

        Raises:
            ModelError: none answers, or what the first one says is no fault of its own.
            BudgetReachedError: a limit is reached.
            InvalidInputError: one that is asked has a name that means no model.
        """
        deadline = asyncio.get_running_loop().time() + within_s

        async def ask(name: str, behind: int) -> WholeReply:
            left_s = deadline - asyncio.get_running_loop().time()
            return await self.one(name, request(name), max(left_s, 0), behind)

        return await first_of(self._registry, models, ask)

    async def one(self, name: str, request: ModelRequest, within_s: float, behind: int = 0) -> WholeReply:
        """The reply of one model.

        Args:
            within_s: seconds, for all attempts.
            behind: how many models are asked after this one: it has to begin within its part of the time.

        Raises:
            ModelError: it does not answer. BudgetReachedError: a limit is reached.
        """
        request = dataclasses.replace(request, model=name.partition("/")[2])
        deadline = asyncio.get_running_loop().time() + within_s
        retries = min(self._retries, QUICK_RETRIES) if behind else self._retries
        try:
            async with asyncio.timeout_at(deadline - within_s * behind / (behind + 1)) as limit:
                for attempt in range(retries + 1):
                    try:
                        return await self._once(name, request, lambda: limit.reschedule(deadline))
                    except ModelError as error:
                        wait_s = pause_s(error, attempt)
                        is_late = asyncio.get_running_loop().time() + wait_s >= (limit.when() or deadline)
                        if error.kind != "retryable" or attempt >= retries or is_late:
                            raise
                        log.info("model_call_repeated", model=name, delay_s=wait_s, error=str(error)[:300])
                    await asyncio.sleep(wait_s)
        except TimeoutError as error:
            text = f"model {name} did not answer within {within_s / (behind + 1):.3g} s"
            raise ModelError("retryable", text, uncertain=True) from error
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, name: str, request: ModelRequest, begun: Callable[[], None]) -> WholeReply:
        words: list[str] = []
        async with self._pay(name, request) as payment:

            async def read(model: ModelBackend, sent: ModelRequest) -> None:
                with back_end_errors(name):
                    await _read(model, sent, payment, words, begun)

            await send(self._registry, name, self._session, payment.request, read, lambda: payment.answered)
        finish = payment.finish or Finish("stop")
        if finish.failure:
            raise ModelError("fatal", FAILURES[finish.failure], code=finish.failure)
        usage, _ = priced(finish, self._registry.facts(name))
        return WholeReply("".join(words), name, finish, usage, payment.counted)


async def first_of(
    registry: Registry,
    models: Sequence[str],
    ask: Callable[[str, int], Awaitable[T]],
    *,
    also_overflow: bool = False,
) -> T:
    """What the first of the models gives that does not fail; one that failed a moment ago is asked last.

    Args:
        ask: asks the model of this name, behind which there are so many others.
        also_overflow: the request is made for each model: what is too long for one may fit another.

    Raises:
        ModelError: of the errors of all, the one that counts; or one that another model would not mend.
    """
    errors: list[ModelError] = []
    order = registry.failed.last(dict.fromkeys(models))
    for behind, name in zip(reversed(range(len(order))), order, strict=True):
        try:
            return await ask(name, behind)
        except ModelError as error:
            errors.append(error)
            if not (may_pass_on(error) or (also_overflow and error.kind == "overflow")):
                raise
            if behind and error.kind != "overflow":
                registry.failed.note(name, error)
                log.warning("model_failed_over", model=name, code=error.code)
    raise to_tell(errors)


async def _read(
    model: ModelBackend, request: ModelRequest, payment: Payment, words: list[str], begun: Callable[[], None]
) -> None:
    async with aclosing(model.stream(request)) as stream:  # type: ignore[type-var] # a generator in all back ends
        async for pieces in stream:
            payment.answered = True
            begun()
            for piece in pieces:
                if isinstance(piece, TextPiece):
                    words.append(readable(piece.text))
                elif isinstance(piece, Finish):
                    payment.finish = msgspec.convert(msgspec.to_builtins(piece), Finish)
    if payment.finish is None:
        raise ModelError("retryable", BROKEN_OFF)
