"""Whether the ledger of a shared budget and the log of a session tell the same, and each cost once."""

import asyncio
import json
import time
from typing import Final

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.protocol import subjects as s
from tests.chaos.evidence import Record, of_role, of_type
from tests.chaos.oracle import Violation
from tests.chaos.points.stage import Stage

SETTLED_WITHIN_S: Final = 20.0


async def ledger_problems(stage: Stage, session: str, entries: list[Record]) -> list[Violation]:
    """What of its reservations does not hold, once the session is idle."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    while True:
        found = _problems(session, entries, await _records(stage))
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.5)  # what a reply cost is in the log before it is in the ledger
        entries = await stage.api.entries(session)


async def _records(stage: Stage) -> dict[tuple[str, str], Record]:
    """By reservation and kind: all records of the ledgers."""
    assert stage.stack.up is not None
    context = json.loads((stage.stack.up.home / "nats" / "context.json").read_text())
    settings = BusSettings(url=context["url"], nkey_seed_file=context["nkey"])
    bus = await Bus.connect(settings, name="operator")
    try:
        found = {}
        async for record in bus.read(s.BUDGETS, "fairlead.budget.>"):
            *_, name, kind = record.subject.split(".")
            found[name, kind] = msgspec.json.decode(record.data)
        return found
    finally:
        await bus.close()


def _problems(session: str, entries: list[Record], ledger: dict[tuple[str, str], Record]) -> list[Violation]:
    replies = {each["reservation"]: each for each in of_role(entries, "assistant") if each.get("reservation")}
    settled = {each["reservation"]: each for each in of_type(entries, "budget_settlement")}
    found = []

    def wrong(text: str) -> None:
        found.append(Violation("MONEY", session, text))

    for reserved in of_type(entries, "budget_reservation"):
        name, amount = reserved["id"], reserved["micro_usd"]
        told = (name in replies) + (name in settled)
        if told != 1:
            wrong(f"reservation {name} has {told} ends in the log")
            continue
        if (name, "settle") not in ledger:
            if (name, "reserve") in ledger:
                wrong(f"reservation {name} is not settled in the ledger")
            continue
        end = ledger[name, "settle"]
        known = end.get("known", False)
        cost = end.get("micro_usd", amount)
        if name in replies:
            in_log, is_known = replies[name]["message"].get("cost_micro_usd", 0), True
        else:
            in_log, is_known = settled[name].get("micro_usd", 0), settled[name].get("known", False)
        if (name, "reserve") in ledger and (cost, known) != (in_log, is_known):
            told_by_ledger, told_by_log = (cost, known), (in_log, is_known)
            wrong(f"reservation {name}: {told_by_ledger} in the ledger, {told_by_log} in the log")
    if not of_type(entries, "budget_reservation"):
        wrong("nothing was reserved")
    return found
