"""What calls outside of sessions used is told once for each, whatever dies, with or without a budget."""

import asyncio

import msgspec
import pytest

from fairlead_agent.budget.ledger import Ledger, Ledgers, today
from fairlead_agent.models.interface import ModelError, TextPiece
from fairlead_agent.projections.log_reader import LogReader
from fairlead_common.errors import FairleadError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.budgets import Reservation, Settlement, scope_of_agent
from fairlead_common.protocol.ids import new_id
from fairlead_common.protocol.plain_calls import PlainAnswer, PlainCall, PlainMessage
from fairlead_common.protocol.usage import PLAIN, UsageRow
from tests.support.fake_nats.faults import Fault
from tests.support.memory_world import MemoryWorld
from tests.unit.in_memory.agent.test_usage import told, until_told

PRICE = {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100, "max_output_tokens": 2000}
PRICED: dict[str, object] = {"models.entries": {"openai/scripted": PRICE}, "models.retries": 0}
LIMITED = {**PRICED, "agents.main.budget": {"usd_per_day": 50}}
REPLY = 1500


async def ask(w: MemoryWorld, user: str = "ann") -> PlainAnswer:
    said = [PlainMessage(role="user", content="op=T1")]
    call = PlainCall(id=new_id(), agent="main", messages=said, user=user)
    reply = await w.bus.request(s.MODEL_ASK, msgspec.json.encode(call), timeout_s=60)
    return msgspec.json.decode(reply.data, type=PlainAnswer)


async def ledger(w: MemoryWorld) -> Ledger:
    return await Ledgers(w.bus).current(scope_of_agent("main"), today())


@pytest.mark.parametrize("settings", [PRICED, LIMITED])
async def test_plain_calls_are_told_by_agent_model_and_user(
    w: MemoryWorld, settings: dict[str, object]
) -> None:
    await w.agent(settings=settings)
    await ask(w)
    await ask(w)
    await ask(w, "bob")
    rows = {row.user: row for row in await until_told(w, 3, PLAIN)}
    assert rows["ann"] == UsageRow(
        agent="main", model="openai/scripted", user="ann", replies=2, input_tokens=20, output_tokens=10,
        cost_micro_usd=2 * REPLY,
    )  # fmt: skip
    assert rows["bob"].replies == 1
    assert (await ledger(w)).known == (3 * REPLY if settings is LIMITED else 0)


async def test_a_refused_call_is_not_told_and_one_that_broke_off_is_told_as_unknown(w: MemoryWorld) -> None:
    await w.agent(settings=LIMITED)
    w.mind.answers += [ModelError("fatal", "no"), [TextPiece("never finished")]]
    assert (await ask(w)).error == "no"
    assert "broke off" in (await ask(w)).error
    (row,) = await until_told(w, 1, PLAIN)
    assert (row.replies, row.unpriced_replies, row.cost_micro_usd) == (1, 1, 0)
    found = await ledger(w)
    assert (found.known, found.unknown, found.open) == (0, row.unknown_micro_usd, {})
    assert found.unknown > REPLY


async def test_a_call_whose_worker_was_killed_is_told_at_all_that_was_reserved(w: MemoryWorld) -> None:
    first = await w.agent("first", LIMITED)
    w.mind.pause_s = 30
    asked = asyncio.create_task(ask(w))
    await w.mind.streaming.wait()
    await first.kill()
    w.mind.pause_s = 0
    with pytest.raises(FairleadError):
        await asked
    reserved = (await ledger(w)).reserved
    assert reserved > 0
    await w.agent("second", LIMITED)
    await asyncio.sleep(420)
    found = await ledger(w)
    assert (found.known, found.unknown, found.open) == (0, reserved, {})
    assert [(row.user, row.unknown_micro_usd) for row in await told(w, PLAIN)] == [("ann", reserved)]


async def test_a_reservation_that_never_counted_is_not_told(w: MemoryWorld) -> None:
    await w.agent(settings=LIMITED)
    value = Reservation(micro_usd=9_000, limit_micro_usd=10, agent="main", user="ann")
    assert not await Ledgers(w.bus).reserve(scope_of_agent("main"), today(), new_id(), value)
    await ask(w, "bob")
    await asyncio.sleep(420)
    assert [row.user for row in await told(w, PLAIN)] == ["bob"]
    assert (await ledger(w)).spent == REPLY


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.DEAD_BEFORE, Fault.DEAD_AFTER])
async def test_each_call_is_told_once_whichever_write_of_the_usage_is_cut_off(
    w: MemoryWorld, fault: Fault
) -> None:
    await w.agent("asked", PRICED)
    hits: list[int] = []
    cuts = asyncio.create_task(_cut_writes(w, fault, hits))
    for _ in range(40):
        assert not (await ask(w)).error
        await asyncio.sleep(1)
    cuts.cancel()
    await w.agent("last", PRICED)
    await until_told(w, 40, PLAIN)
    await asyncio.sleep(20)
    (row,) = await told(w, PLAIN)
    assert (row.replies, row.cost_micro_usd) == (40, 40 * REPLY)
    assert len(hits) > 4


async def _cut_writes(w: MemoryWorld, fault: Fault, hits: list[int]) -> None:
    """Writers of the usage whose writes are cut off one after the other."""
    for number in range(20):
        name = f"writer-{number}"
        writer = LogReader(await w.server.connect(name))
        cut = w.server.faults.add(f"$KV.{s.BUCKET_USAGE}.>", fault, client=name, after=number % 3)
        while not cut.hit.is_set():
            try:
                async with asyncio.timeout(3):  # the dead wait for ever
                    await writer._plain.take_over()
            except (FairleadError, TimeoutError):
                break
            await asyncio.sleep(0.7)
        hits.append(number)


async def test_several_writers_and_a_lost_bucket_change_nothing(w: MemoryWorld) -> None:
    await w.agent(settings=LIMITED)
    for _ in range(5):
        await ask(w)
    await asyncio.gather(*(LogReader(w.bus)._plain.take_over() for _ in range(3)))
    first = await until_told(w, 5, PLAIN)
    await w.bus.purge(s.kv_stream(s.BUCKET_USAGE), f"$KV.{s.BUCKET_USAGE}.>")
    assert await told(w, PLAIN) == []
    assert await until_told(w, 5, PLAIN) == first
    [row] = first
    assert (row.replies, row.cost_micro_usd) == (5, 5 * REPLY)


def test_a_settlement_of_an_earlier_version_says_nothing_of_what_was_used() -> None:
    assert msgspec.json.decode(b'{"micro_usd": 5, "known": true}', type=Settlement).used is None
