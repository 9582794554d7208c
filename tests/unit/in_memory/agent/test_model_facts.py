"""Requests are as large, and as long in reply, as the model that is asked takes them."""

from tests.support.memory_world import MemoryWorld


def entries(**facts: object) -> dict[str, object]:
    """Settings that say what is known of the model that is asked."""
    return {"models.entries": {"openai/scripted": facts}}


async def test_a_request_fits_into_the_window_of_the_model(w: MemoryWorld) -> None:
    await w.agent(settings=entries(context_window=8000))
    await w.say("a", "op=P1 " + "x" * 40_000)
    assert (await w.run_end("a")).outcome == "completed"
    assert len(str(w.mind.requests[-1])) < 4 * 6000  # characters: the rest of the input is in a file
    await w.say("a", "op=P2")
    assert (await w.run_end("a", 2)).outcome == "completed"


async def test_the_same_agent_asks_a_model_with_a_larger_window_for_more(w: MemoryWorld) -> None:
    await w.agent(settings=entries(context_window=800_000))
    await w.say("a", "op=P1 " + "x" * 400_000)
    assert (await w.run_end("a")).outcome == "completed"


async def test_an_agent_may_use_less_of_the_window(w: MemoryWorld) -> None:
    await w.agent(settings={**entries(context_window=800_000), "agents.main.context_window": 8000})
    await w.say("a", "op=P1 " + "x" * 40_000)
    assert (await w.run_end("a")).outcome == "completed"
    assert len(str(w.mind.requests[-1])) < 4 * 6000


async def test_a_reply_is_no_longer_than_the_model_and_its_window_allow(w: MemoryWorld) -> None:
    facts = entries(context_window=20_000, max_output_tokens=12_000)
    await w.agent(settings={**facts, "agents.main.max_output_tokens": 50_000})
    await w.say("a", "op=P1")
    await w.run_end("a")
    for number in range(2, 6):
        await w.say("a", f"op=P{number} " + "x" * 8_000)
        await w.run_end("a", number)
    first, second = w.mind.asked[0], w.mind.asked[-1]
    assert first.max_output_tokens == 12_000
    assert second.room_tokens == second.max_output_tokens
    assert 5000 <= (second.max_output_tokens or 0) < 12_000
