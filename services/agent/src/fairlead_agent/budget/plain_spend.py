"""Requests to a model outside of sessions, under the budget of their agent for the day.

There is no log and no one to ask: a request that does not fit is refused. What one used is in its settlement,
also without a budget. One that was cut off by a death stays reserved until `PlainUsage` settles it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from fairlead_agent.budget.ledger import Ledgers, scope_of, today
from fairlead_agent.budget.limits import Limit, Shortfall, plan
from fairlead_agent.budget.payment import Payment
from fairlead_agent.models.interface import ModelError, ModelRequest
from fairlead_agent.models.pricing import MICRO, priced
from fairlead_agent.models.table import ModelFacts
from fairlead_common.protocol.budgets import Reservation, Settlement
from fairlead_common.protocol.content import Usage, words_of
from fairlead_common.protocol.ids import new_id
from fairlead_common.protocol.usage import UsageRow, row_of

BUDGET_REACHED: Final = "budget"  # `code` of the refusal
_BYTES_PER_TOKEN: Final = 4
_UNKNOWN_OUTPUT_TOKENS: Final = 32_000


class Spender(NamedTuple):
    """Whose usage it is, and what holds for it.

    Fields:
        usd_per_day: of the agent, on all workers; None: no limit.
    """

    agent: str
    user: str
    usd_per_day: float | None


@asynccontextmanager
async def spend_plain(
    ledgers: Ledgers, spender: Spender, model: str, facts: ModelFacts, request: ModelRequest
) -> AsyncIterator[Payment]:
    """Reserve for a request if there is a limit, settle it after, and record what it used.

    Args:
        model: its name. facts: what is known of it.

    Raises:
        ModelError: the limit is reached, or the price of the model is not known; nothing may be sent.
        BusUnavailableError: what it used may not be recorded.
    """
    scope, day, record = scope_of(spender.agent), today(), new_id()
    payment, reserved = Payment(request), 0
    if spender.usd_per_day is not None:
        payment, reserved = await _reserved(ledgers, spender, (scope, day, record), model, facts, request)
    failure: BaseException | None = None
    try:
        yield payment
    except BaseException as error:
        failure = error
        raise
    finally:
        settlement = _settlement(spender, model, facts, payment, reserved, failure)
        if settlement.used is not None or spender.usd_per_day is not None:
            await ledgers.settle(scope, day, record, settlement)
            payment.counted = settlement.used is not None


async def _reserved(
    ledgers: Ledgers,
    spender: Spender,
    place: tuple[str, str, str],
    model: str,
    facts: ModelFacts,
    request: ModelRequest,
) -> tuple[Payment, int]:
    """The request as it may be sent, and the micro-dollars that are reserved at `place` in the ledger.

    Raises:
        ModelError: the limit is reached, or the price of the model is not known.
    """
    scope, day, record = place
    size = (len(request.system) + sum(len(words_of(each)) for each in request.messages)) // _BYTES_PER_TOKEN
    prices = facts.prices_of(size)
    if prices is None:
        text = f"The price of model {model} is not known, and the `budget` of the agent limits money."
        raise ModelError("fatal", text, code="model_price_unknown")
    ledger = await ledgers.current(scope, day)
    of_agent = round((spender.usd_per_day or 0) * MICRO)
    limit = Limit("usd_per_day", of_agent + ledger.extended, ledger.spent, ledger.reserved, scope, day)
    wanted = request.max_output_tokens or facts.output_tokens or _UNKNOWN_OUTPUT_TOKENS
    planned = plan([limit], prices, size, wanted)
    if isinstance(planned, Shortfall):
        raise ModelError("fatal", planned.why, code=BUDGET_REACHED)
    value = Reservation(
        micro_usd=planned.micro_usd,
        limit_micro_usd=of_agent,
        model=model,
        agent=spender.agent,
        user=spender.user,
    )
    if not await ledgers.reserve(scope, day, record, value):
        raise ModelError("fatal", Shortfall(limit, planned.micro_usd).why, code=BUDGET_REACHED)
    return Payment(replace(request, max_output_tokens=planned.output_tokens)), planned.micro_usd


def _settlement(
    spender: Spender,
    model: str,
    facts: ModelFacts,
    payment: Payment,
    reserved: int,
    failure: BaseException | None,
) -> Settlement:
    whose = UsageRow(agent=spender.agent, model=model, user=spender.user)
    if payment.finish is not None:
        usage, cost = priced(payment.finish, facts)
    elif payment.is_free(failure):
        return Settlement(micro_usd=0, known=True)
    else:
        usage, cost = Usage(unpriced_replies=1), None
    unknown = reserved if cost is None else 0
    whose = msgspec.structs.replace(whose, unknown_micro_usd=unknown)
    if payment.finish is None and not payment.answered:
        return Settlement(used=whose if unknown else None)
    return Settlement(micro_usd=cost, known=cost is not None, used=row_of(usage, cost or 0, whose))
