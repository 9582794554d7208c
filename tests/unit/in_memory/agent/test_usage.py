"""What models were used for is told by day, agent, model and user, once for each reply, whatever dies."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from fairlead_agent.budget.ledger import today
from fairlead_agent.projections.log_reader import LogReader
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import AssistantMessage
from fairlead_common.protocol.entries import MessageEntry
from fairlead_common.protocol.usage import DayUsage, UsageRow
from tests.support.fake_nats.faults import Fault
from tests.support.memory_world import MemoryWorld

PRICED: dict[str, object] = {
    "models.entries": {"openai/scripted": {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100}}
}
REPLY = 1500


async def told(w: MemoryWorld, part: str = "") -> list[UsageRow]:
    record = await w.bus.last(s.kv_stream(s.BUCKET_USAGE), f"$KV.{s.BUCKET_USAGE}.{part}{today()}")
    return msgspec.json.decode(record.data, type=DayUsage).rows if record is not None else []


async def until_told(w: MemoryWorld, replies: int, part: str = "") -> list[UsageRow]:
    rows: list[UsageRow] = []
    for _ in range(60):
        rows = await told(w, part)
        if sum(row.replies for row in rows) >= replies:
            return rows
        await asyncio.sleep(1)
    pytest.fail(f"never told: {rows}")


async def counted(w: MemoryWorld, sessions: Sequence[str]) -> int:
    logs = [await w.log(session) for session in sessions]
    return sum(
        isinstance(entry, MessageEntry) and isinstance(entry.message, AssistantMessage)
        for log in logs
        for entry in log
    )


async def test_replies_are_told_by_agent_model_and_user(w: MemoryWorld) -> None:
    await w.agent(settings=PRICED)
    await w.say("a", "op=P1 steps=1", sender="ann")
    await w.say("b", "op=P1", sender="bob")
    await w.settled("a")
    await w.settled("b")
    rows = {row.user: row for row in await until_told(w, 3)}
    assert rows["ann"] == UsageRow(
        agent="main", model="openai/scripted", user="ann", replies=2, input_tokens=20, output_tokens=10,
        cost_micro_usd=2 * REPLY,
    )  # fmt: skip
    assert rows["bob"].replies == 1


async def test_usage_of_a_session_that_was_deleted_stays(w: MemoryWorld) -> None:
    await w.agent(settings=PRICED)
    await w.say("a", "op=P1")
    await w.settled("a")
    await until_told(w, 1)
    await w.notice("a", "delete")
    await w.wait_for("a", lambda log: log[-1].__struct_config__.tag == "deleted")
    await asyncio.sleep(20)
    assert [row.replies for row in await told(w)] == [1]


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.DEAD_BEFORE, Fault.DEAD_AFTER])
async def test_each_reply_counts_once_whichever_write_is_cut_off(w: MemoryWorld, fault: Fault) -> None:
    cuts = asyncio.create_task(_cut_writes(w, fault))
    sessions = [f"s{number}" for number in range(6)]
    for session in sessions:
        await w.say(session, "op=P1 steps=1")
        await w.settled(session)
        await asyncio.sleep(8)
    cuts.cancel()
    await w.agent("last", PRICED)
    await until_told(w, replies := await counted(w, sessions))
    await asyncio.sleep(20)
    [row] = await told(w)
    assert (row.replies, row.cost_micro_usd) == (replies, replies * REPLY)
    assert len(w._agents) > 3 or fault is Fault.ANSWER_LOST


async def _cut_writes(w: MemoryWorld, fault: Fault) -> None:
    """Each agent dies at its second write of the usage, and another takes its place."""
    for number in range(20):
        agent = await w.agent(f"agent-{number}", PRICED)
        cut = w.server.faults.add(f"$KV.{s.BUCKET_USAGE}.>", fault, client=agent.name, after=1)
        await cut.hit.wait()
        if fault is not Fault.ANSWER_LOST:
            await agent.kill()


async def test_two_writers_at_once_and_a_lost_bucket_change_nothing(w: MemoryWorld) -> None:
    await w.agent(settings=PRICED)
    sessions = ["a", "b", "c"]
    for session in sessions:
        await w.say(session, "op=P1 steps=2")
        await w.settled(session)
    await asyncio.gather(*(LogReader(w.bus).take_over() for _ in range(3)))
    await until_told(w, 9)
    first = await told(w)
    await w.bus.purge(s.kv_stream(s.BUCKET_USAGE), f"$KV.{s.BUCKET_USAGE}.>")
    assert await told(w) == []
    await until_told(w, 9)
    assert all(one == other for one, other in pairwise([first, await told(w)]))
