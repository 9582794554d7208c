"""What an executor does whose MCP server asks a person, for agents in memory."""

import asyncio
from typing import Any

import msgspec

from fairlead_common.errors import FairleadError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import ToolOutcome, text_outcome
from fairlead_common.protocol.entries import ApprovalRequestEntry, Entry
from fairlead_common.protocol.messages import ToolCall, ToolSpec
from fairlead_common.protocol.question_forms import FieldChoice, FormField
from fairlead_common.protocol.questions import CallQuestion, Option, Question, QuestionAnswer
from tests.support.agent_world import HOST, SPECS
from tests.support.memory_world import MemoryWorld

ORDER = ToolSpec(
    name="mcp__shop__order",
    description="Orders.",
    parameters={"type": "object", "properties": {}},
    group="mcp",
)
ORDERS = "op=P1 steps=1 tool=mcp__shop__order args={}"
ATTEMPT = "a" * 16
SIZE = FormField(
    name="size", kind="choice", required=True, choices=[FieldChoice("s", "Small"), FieldChoice("l", "Large")]
)
WHICH = Question("Which size?", [Option("Small"), Option("Large")], server="shop", fields=[SIZE])


async def ask(w: MemoryWorld, call: ToolCall, number: int = 1, attempt: str = ATTEMPT, **fields: Any) -> str:
    """Put a question to the session, as often as it takes."""
    identity = f"{attempt}-{number}"
    given = {"asked": WHICH, "token": call.token, **fields}
    body = msgspec.json.encode(
        msgspec.convert({"id": identity, "call_id": call.call_id, **given}, CallQuestion)
    )
    while True:
        try:
            await w.bus.offer(s.mail(call.session, "question", identity), body)
        except FairleadError:
            await asyncio.sleep(0.5)
        else:
            return identity


async def answered(w: MemoryWorld, call: ToolCall, identity: str) -> QuestionAnswer:
    """What came of it, once that is written; nobody answers a call that has ended."""
    for _ in range(2_000):
        record = await w.bus.last(s.TOOLS, s.tool_answer(HOST, call.call_id, identity))
        if record is not None:
            return msgspec.json.decode(record.data, type=QuestionAnswer)
        await asyncio.sleep(0.5)
    return QuestionAnswer(action="cancel")


async def open_question(w: MemoryWorld, count: int = 1) -> ApprovalRequestEntry:
    """The newest of so many requests."""
    asked: list[ApprovalRequestEntry] = []

    def is_asked(log: list[Entry]) -> bool:
        asked[:] = [entry for entry in log if isinstance(entry, ApprovalRequestEntry)]
        return len(asked) >= count

    await w.wait_for("a", is_asked)
    return asked[-1]


async def offer(w: MemoryWorld, questions: int = 1) -> None:
    """The world's executor has a tool whose server asks so many questions, one after the other."""
    w.specs = [*SPECS, ORDER]

    async def order(call: ToolCall) -> ToolOutcome:
        said = []
        for number in range(1, questions + 1):
            answer = await answered(w, call, await ask(w, call, number))
            said.append(f"{answer.action} {msgspec.json.encode(answer.values).decode()}")
        return text_outcome("ok", "; ".join(said), is_error=False)

    w.tool = order
    while True:
        try:
            return await w.heartbeat()
        except FairleadError:
            await asyncio.sleep(0.5)
