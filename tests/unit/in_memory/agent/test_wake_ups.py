"""Wake-ups that reach a process which does not own the session: few questions, and none is lost."""

import asyncio

import pytest

from fairlead_agent.ownership import owned_elsewhere
from fairlead_common.bus.streams import consumer_info
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.entries import RunStartEntry
from tests.support.fake_nats.faults import Fault
from tests.support.memory_world import Agent, MemoryWorld
from tests.support.waiting import until

PROMPTS = 20
LOOK = f"$JS.API.DIRECT.GET.{s.SESSIONS}"  # many logs at once


async def questions(w: MemoryWorld) -> list[bytes]:
    """Questions about sessions between the agents, from now on."""
    asked: list[bytes] = []

    def note(delivery: object) -> None:
        data: bytes = getattr(delivery, "data", b"")
        if b'"session":""' not in data:
            asked.append(data)

    await w.bus.subscribe("fairlead.owner.*", note)
    return asked


async def say(w: MemoryWorld, session: str, first: int, count: int) -> None:
    """Prompts in a row, each once the one before is answered."""
    for number in range(first, first + count):
        await w.say(session, f"op=P{number}")
        await w.run_end(session, number, 60)


async def two_agents(w: MemoryWorld) -> tuple[Agent, Agent]:
    """The first one owns `a`, and the second one knows that."""
    first = await w.agent("agent-1")
    await say(w, "a", 1, 1)
    second = await w.agent("agent-2")
    await say(w, "a", 2, 4)
    return first, second


async def none_is_open(w: MemoryWorld) -> bool:
    info = await consumer_info(w.bus, s.SESSIONS, s.AGENTS_CONSUMER) or {}
    return bool(info["num_ack_pending"] == 0 and info["num_pending"] == 0)


async def owners(w: MemoryWorld, session: str) -> list[int]:
    """The epoch of each run."""
    return [entry.epoch for entry in await w.log(session) if isinstance(entry, RunStartEntry)]


async def test_of_prompts_in_a_row_the_owner_is_asked_about_the_first_ones_alone(w: MemoryWorld) -> None:
    await two_agents(w)
    asked = await questions(w)
    await say(w, "a", 6, PROMPTS)
    await until(lambda: none_is_open(w), "all wake-ups are acknowledged")
    assert asked == []
    assert len(set(await owners(w, "a"))) == 1


async def test_the_next_prompt_of_an_owner_that_died_is_answered_by_another_process(w: MemoryWorld) -> None:
    first, _ = await two_agents(w)
    await first.kill()
    began = asyncio.get_running_loop().time()
    await say(w, "a", 6, 4)
    assert asyncio.get_running_loop().time() - began < 5
    await until(lambda: none_is_open(w), "all wake-ups are acknowledged")
    before, after = set((await owners(w, "a"))[:5]), set((await owners(w, "a"))[5:])
    assert (len(before), len(after)) == (1, 1)
    assert before != after


async def test_after_an_owner_gave_up_one_session_none_of_its_others_waits(w: MemoryWorld) -> None:
    first = await w.agent("agent-1")
    for session in ("a", "b"):
        await say(w, session, 1, 1)
    second = await w.agent("agent-2")
    for session in ("a", "b"):
        await say(w, session, 2, 4)
    await first.drain()
    await say(w, "a", 6, 1)
    began = asyncio.get_running_loop().time()
    await say(w, "b", 6, 1)
    assert asyncio.get_running_loop().time() - began < owned_elsewhere.LOOK_S
    assert second.name == "agent-2"


async def test_an_owner_is_asked_where_the_logs_cannot_be_read(w: MemoryWorld) -> None:
    await two_agents(w)
    asked = await questions(w)
    w.server.faults.add(LOOK, Fault.LOST, client="agent-2", times=1000)
    await say(w, "a", 6, 6)
    await until(lambda: none_is_open(w), "all wake-ups are acknowledged", 60)
    assert asked
    assert len(set(await owners(w, "a"))) == 1


async def test_a_process_that_stops_gives_back_the_wake_ups_that_it_keeps(
    w: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_elsewhere, "LOOK_S", 8.0)
    _, second = await two_agents(w)
    await until(lambda: none_is_open(w), "the first ones are acknowledged", 30)
    await say(w, "a", 6, 4)
    assert not await none_is_open(w)
    await second.drain()
    began = asyncio.get_running_loop().time()
    await until(lambda: none_is_open(w), "all wake-ups are acknowledged", 60)
    assert asyncio.get_running_loop().time() - began < 5  # not by the redelivery after 30 s
