"""What an executor says of a call that it ran itself and that did not come to its end."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from fairlead_common.protocol.content import TextBlock, ToolOutcome, ToolStatus, text_outcome
from fairlead_common.protocol.messages import ToolCall, ToolSpec
from fairlead_tools.executor_tools.calls import ExecutorCalls
from fairlead_tools.executor_tools.tools import NotStartedError, ReportProgress


class Tool:
    """Sends its request, and then `fails` or hangs; with `NotStartedError` it sends nothing."""

    def __init__(self, fails: Exception | None, *, idempotent: bool) -> None:
        self.spec = ToolSpec(name="t", description="", parameters={}, idempotent=idempotent)
        self._fails = fails

    async def run(self, call: ToolCall, progress: ReportProgress) -> ToolOutcome:
        if self._fails is not None:
            raise self._fails
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def outcome(folder: Path, tool: Tool) -> ToolOutcome:
    async def show(call: ToolCall, text: str, offset: int) -> None:
        return None

    call = ToolCall(
        call_id="c1", session="s", name="t", arguments={}, workspace="", token="t", timeout_s=0.05
    )
    return await ExecutorCalls(folder, show).outcome(call, tool)


@pytest.mark.parametrize(
    ("fails", "idempotent", "status"),
    [
        (OSError("the answer could not be stored"), False, "unknown"),
        (TimeoutError("of its own"), False, "unknown"),
        (None, False, "unknown"),
        (NotStartedError("there is no key"), False, "error"),
        (OSError("the answer could not be stored"), True, "error"),
        (TimeoutError("of its own"), True, "error"),
        (None, True, "timed_out"),
    ],
)
async def test_what_may_have_taken_effect_is_unknown_unless_it_may_be_repeated(
    tmp_path: Path, fails: Exception | None, idempotent: bool, status: ToolStatus
) -> None:
    found = await outcome(tmp_path, Tool(fails, idempotent=idempotent))
    assert (found.status, found.is_error) == (status, True)
    said = found.content[0]
    assert isinstance(said, TextBlock)
    assert str(fails or "Stopped after 0.05 s") in said.text
    assert ("check before you repeat it" in said.text) == (status == "unknown")


async def test_a_call_that_is_stopped_says_that_it_may_have_done_something(tmp_path: Path) -> None:
    async def show(call: ToolCall, text: str, offset: int) -> None:
        return None

    calls = ExecutorCalls(tmp_path, show)
    call = ToolCall(call_id="c1", session="s", name="t", arguments={}, workspace="", token="t")
    running = asyncio.create_task(calls.outcome(call, Tool(None, idempotent=False)))
    async with asyncio.timeout(20):
        while not calls.running:
            await asyncio.sleep(0)
    assert calls.running == {"c1"}
    calls.cancel("c1")
    found = await running
    said = text_outcome("cancelled", found.content[0].text, is_error=True)  # type: ignore[union-attr]
    assert msgspec.structs.replace(found, duration_ms=0) == said
    assert "until then remains" in found.content[0].text  # type: ignore[union-attr]
