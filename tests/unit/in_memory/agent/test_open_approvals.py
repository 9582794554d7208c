"""What changes while an approval is open: what a person allowed runs as it was shown, or not at all."""

import msgspec
import pytest

from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import TextBlock, ToolResultMessage
from fairlead_common.protocol.messages import ExecutorInfo
from fairlead_common.protocol.notices import MoveSession, UpdateSession
from fairlead_common.protocol.settings_entries import SessionInfoEntry
from fairlead_tools.specs import BUILT_IN
from tests.support.agent_world import HOST, SPECS
from tests.support.memory_world import MemoryWorld

ASK: dict[str, object] = {"agents.main.mode": "ask"}


async def decided(w: MemoryWorld, name: str, notice: object, settings: dict[str, object]) -> tuple[str, str]:
    """What came of a call that was allowed after a notice."""
    await w.agent(settings=settings)
    await w.say("a", "op=P1 steps=1")
    request = await w.approval("a")
    seq = await w.notice("a", name, notice)
    await w.wait_for("a", lambda log: isinstance(log[-1], SessionInfoEntry) and log[-1].cursor == seq)
    await w.decide("a", request, "once")
    await w.settled("a", 2)
    (found,) = [m for m in await w.messages("a") if isinstance(m, ToolResultMessage)]
    words = "".join(block.text for block in found.outcome.content if isinstance(block, TextBlock))
    return found.outcome.status, words


@pytest.mark.parametrize("kind", ["folder", "scratch"])
async def test_a_call_that_was_allowed_before_a_move_runs_where_it_was_shown(
    w: MemoryWorld, kind: str
) -> None:
    await w.agent("first", ASK | {"agents.main.workspace_kind": kind})
    other = ExecutorInfo(executor="e2", host="host2", tools=SPECS, default_workspace="/elsewhere")
    await w.say("a", "op=P1 steps=1")
    request = await w.approval("a")
    await Bucket(w.bus, s.BUCKET_EXECUTORS).put("host2.e2", msgspec.json.encode(other), ttl_s=600)
    seq = await w.notice("a", "move-1", MoveSession(host="host2", force_empty=True))
    await w.wait_for("a", lambda log: isinstance(log[-1], SessionInfoEntry) and log[-1].cursor == seq)
    await w.decide("a", request, "once")
    await w.settled("a", 2)
    (call,) = w.calls
    assert (request.host, request.workspace) == (HOST, call.workspace)
    if kind == "folder":
        assert call.workspace == "/workspace"


async def test_a_call_that_was_allowed_in_another_sandbox_does_not_run(w: MemoryWorld) -> None:
    status, words = await decided(w, "update-1", UpdateSession(sandbox="docker"), ASK)
    assert status == "denied"
    assert "differs from what that person was shown" in words
    assert w.calls == []


async def test_a_call_that_another_agents_tool_would_take_is_shown_as_it_will_run(w: MemoryWorld) -> None:
    w.specs = BUILT_IN
    await w.heartbeat()
    await w.agent(settings=ASK)
    await w.say("a", 'op=P1 steps=1 tool=Shell args={"cmd":["bash","-lc","make"],"timeout":"5000"}')
    request = await w.approval("a")
    assert (request.tool, request.arguments) == ("bash", {"command": "make", "timeout_s": 5})
    await w.decide("a", request, "once")
    await w.settled("a", 2)
    (call,) = w.calls
    assert (call.name, call.arguments, call.timeout_s) == (request.tool, request.arguments, 5)
