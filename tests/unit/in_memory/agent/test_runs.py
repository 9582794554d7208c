"""What a session does with what people say to it, from mail to log."""

from tests.support.memory_world import MemoryWorld


async def test_a_prompt_becomes_a_run_with_its_tool_call_and_its_answer(w: MemoryWorld) -> None:
    await w.agent()
    await w.say("a", "op=P1 steps=1")
    assert await w.settled("a") == [
        "run starts",
        "user: op=P1 steps=1",
        "calls bash",
        "result ok",
        "says done P1",
        "run completed",
    ]
    assert [call.arguments["command"] for call in w.calls] == ["python3 -IS ledger.py P1.S1 0"]
