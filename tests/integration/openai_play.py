"""A scripted agent that answers what OpenAI's client asks."""

from collections.abc import Awaitable, Callable

from fairlead_common.bus import Bus
from fairlead_common.protocol.content import (
    ToolCallBlock,
    ToolResultMessage,
    Usage,
    text_outcome,
)
from fairlead_common.protocol.entries import MessageEntry
from fairlead_common.protocol.ids import new_id
from tests.integration.gateway_fixture import FakeAgent

Script = Callable[[FakeAgent, int], Awaitable[None]]


async def play(bus: Bus, session: str, script: Script) -> tuple[FakeAgent, bytes]:
    """Wait for the prompt of a session and act on it; the agent, and what it was told."""
    agent = FakeAgent(bus, session)
    seq, data = await agent.mail()
    await script(agent, seq)
    return agent, data


async def answer(agent: FakeAgent, seq: int) -> None:
    """Two turns: thought, words and a call; then the final words."""
    await agent.begin([seq])
    await agent.stream("m1x", ["hm ", "well"], "thinking_delta")
    await agent.stream("m1x", ["I "], first=2)
    usage = Usage(input_tokens=10, output_tokens=5)
    call = ToolCallBlock(call_id="m1x_1", name="ls", arguments={})
    await agent.reply("m1x", "I look", call, thoughts="hm well", usage=usage)
    outcome = text_outcome("ok", "files", is_error=False)
    await agent.append(
        MessageEntry(id=new_id(), message=ToolResultMessage(call_id="m1x_1", name="ls", outcome=outcome))
    )
    await agent.stream("m2", ["It ", "is "])
    await agent.reply("m2", "It is done", usage=Usage(input_tokens=20, output_tokens=7, cache_read_tokens=4))
    await agent.end(usage=Usage(input_tokens=30, output_tokens=12))
