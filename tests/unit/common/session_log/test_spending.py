"""What a session has spent, as its log tells."""

from datetime import UTC, datetime

import msgspec
import pytest

from fairlead_common.protocol.budget_entries import BudgetReservationEntry, BudgetSettlementEntry
from fairlead_common.protocol.content import AssistantMessage, Usage
from fairlead_common.protocol.entries import (
    ApprovalDecision,
    ApprovalEntry,
    ApprovalRequestEntry,
    MessageEntry,
    RunStartEntry,
)
from fairlead_common.session_log.spending import Spending, asks_for_budget

DAY = "2026-11-23"


def reply(cost: int | None, reservation: str = "", tokens: int = 10) -> MessageEntry:
    usage = Usage(input_tokens=tokens)
    message = AssistantMessage(content=[], model="m", usage=usage, cost_micro_usd=cost)
    return MessageEntry(id="m", message=message, reservation=reservation)


def reserved(name: str = "r1") -> BudgetReservationEntry:
    return BudgetReservationEntry(id=name, model="m", micro_usd=500, tokens=70, day=DAY, scope="agent-main")


def started(*, resumes: str | None = None) -> RunStartEntry:
    return RunStartEntry(id="s", agent="main", model="m", mode="ask", resumes=resumes)


def test_a_reply_of_unknown_cost_counts_with_all_that_was_reserved() -> None:
    spending = Spending()
    for entry in (started(), reserved(), reply(None, "r1", tokens=0)):
        spending.apply(entry)
    assert (spending.run_micro_usd, spending.run_tokens, spending.open) == (500, 70, None)
    assert spending.last is not None
    assert spending.last[1:] == (None, False)


def test_a_run_starts_anew_and_one_that_goes_on_does_not() -> None:
    spending = Spending()
    for entry in (started(), reply(300), started(resumes="r"), reply(200)):
        spending.apply(entry)
    assert (spending.run_micro_usd, spending.run_tokens) == (500, 20)
    spending.apply(started())
    assert (spending.run_micro_usd, spending.run_tokens, spending.session_micro_usd) == (0, 0, 500)


def test_a_settlement_of_another_reservation_changes_nothing() -> None:
    spending = Spending()
    for entry in (started(), reserved(), BudgetSettlementEntry(id="x", reservation="other", micro_usd=9)):
        spending.apply(entry)
    assert spending.run_micro_usd == 0
    assert spending.open is not None
    spending.apply(BudgetSettlementEntry(id="y", reservation="r1", micro_usd=9, known=True))
    after = spending.open
    assert spending.run_micro_usd == 9
    assert after is None


@pytest.mark.parametrize(
    ("decision", "decided_on", "refused"),
    [
        ("deny", DAY, True),
        ("expired", DAY, True),
        ("expired", "2026-11-24", False),
        ("once", DAY, False),
    ],
)
def test_a_run_that_waits_for_the_budget_of_a_day_goes_on_with_more_or_with_the_next_day(
    decision: ApprovalDecision, decided_on: str, refused: bool
) -> None:
    spending = Spending()
    asked: dict[str, object] = {
        "limit": "usd_per_day",
        "scope": "agent-main",
        "day": DAY,
        "more_micro_usd": 700,
    }
    request = ApprovalRequestEntry(
        id="a", call_id="budget_a", tool="budget", arguments=asked, workspace="", host="", shown_hash="",
        expires_at=0, why="reached",
    )  # fmt: skip
    ts = int(datetime.fromisoformat(decided_on).replace(tzinfo=UTC).timestamp() * 1000)
    entry = ApprovalEntry(id="d", ts=ts, approval_id="a", call_id="budget_a", decision=decision)
    assert asks_for_budget(request)
    assert not asks_for_budget(msgspec.structs.replace(request, call_id="m1_0"))  # a tool of that name
    spending.decided(request, entry)
    assert bool(spending.refused) is refused
    assert [each.micro_usd for each in spending.day_extensions] == ([700] if decision == "once" else [])
    spending.apply(started(resumes="r"))
    assert spending.refused == ""
