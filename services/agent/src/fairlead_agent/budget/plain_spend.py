"""Requests to a model outside of sessions, under the budget of their agent for the day.

There is no log and no one to ask: a request that does not fit is refused. One that was cut off by a death
stays reserved for the day.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from fairlead_agent.budget.ledger import Ledgers, scope_of, today
from fairlead_agent.budget.limits import Limit, Shortfall, plan
from fairlead_agent.budget.payment import Payment
from fairlead_agent.models.interface import ModelError, ModelRequest
from fairlead_agent.models.pricing import MICRO, cost_of
from fairlead_agent.models.table import ModelFacts
from fairlead_common.protocol.budgets import Reservation, Settlement
from fairlead_common.protocol.content import words_of
from fairlead_common.protocol.ids import new_id

BUDGET_REACHED: Final = "budget"  # `code` of the refusal
_BYTES_PER_TOKEN: Final = 4
_UNKNOWN_OUTPUT_TOKENS: Final = 32_000


@asynccontextmanager
async def spend_plain(
    ledgers: Ledgers, agent: str, usd_per_day: float | None, facts: ModelFacts, request: ModelRequest
) -> AsyncIterator[Payment]:
    """Reserve for a request and settle it after.

    Args:
        usd_per_day: the limit; None: there is none, and nothing is written.

    Raises:
        ModelError: the limit is reached, or the price of the model is not known; nothing may be sent.
    """
    if usd_per_day is None:
        yield Payment(request)
        return
    scope, day, record = scope_of(agent), today(), new_id()
    size = (len(request.system) + sum(len(words_of(each)) for each in request.messages)) // _BYTES_PER_TOKEN
    prices = facts.prices_of(size)
    if prices is None:
        text = "The price of the model is not known, and the `budget` of the agent limits money."
        raise ModelError("fatal", text, code="model_price_unknown")
    ledger = await ledgers.current(scope, day)
    limit = Limit(
        "usd_per_day", round(usd_per_day * MICRO) + ledger.extended, ledger.spent, ledger.reserved, scope, day
    )
    wanted = request.max_output_tokens or facts.output_tokens or _UNKNOWN_OUTPUT_TOKENS
    planned = plan([limit], prices, size, wanted)
    if isinstance(planned, Shortfall):
        raise ModelError("fatal", planned.why, code=BUDGET_REACHED)
    value = Reservation(micro_usd=planned.micro_usd, limit_micro_usd=round(usd_per_day * MICRO))
    if not await ledgers.reserve(scope, day, record, value):
        raise ModelError("fatal", Shortfall(limit, planned.micro_usd).why, code=BUDGET_REACHED)
    payment = Payment(replace(request, max_output_tokens=planned.output_tokens))
    failure: BaseException | None = None
    try:
        yield payment
    except BaseException as error:
        failure = error
        raise
    finally:
        cost = 0 if payment.is_free(failure) else None
        cost = cost if payment.finish is None else cost_of(payment.finish, facts)
        await ledgers.settle(scope, day, record, Settlement(micro_usd=cost, known=cost is not None))
