"""Writes the log of a session, its mail and its calls, as an agent would."""

from typing import Any

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.chunked_requests import write_parts
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_outcome,
)
from fairlead_common.protocol.entries import (
    Entry,
    MessageEntry,
    RunStartEntry,
)
from fairlead_common.protocol.entry_codec import decode_entry, encode_entry
from fairlead_common.protocol.messages import ToolCall, ToolClaim, ToolResult, UserInput

HOST = "h1"


class Session:
    """Writes a log as an agent would."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.bus, self.name = bus, name
        self.last, self.leaf = 0, ""
        self.number = 0

    async def say(self, text: str, key: str) -> int:
        body = msgspec.json.encode(UserInput(text=text))
        return await self.bus.create(s.SESSIONS, s.mail(self.name, "prompt", key), body)

    async def log(self, kind: type[Any], *, state: str = "open", cursor: int = 0, **fields: Any) -> str:
        self.number += 1
        entry = kind(
            id=f"{self.name}e{self.number}",
            parent_id=self.leaf or None,
            epoch=1,
            cursor=cursor,
            run_id="r1",
            **fields,
        )
        headers = {s.H_CURSOR: str(cursor), s.H_STATE: state}
        self.last = await self.bus.append(
            s.SESSIONS,
            s.session_log(self.name),
            encode_entry(entry),
            record_id=entry.id,
            expected=self.last,
            headers=headers,
        )
        self.leaf = entry.id
        return str(entry.id)

    async def ask_for(self, *calls: str) -> list[str]:
        """A prompt and the reply that asks for these tools; the ids of the calls."""
        seq = await self.say("do it", "k1")
        await self.log(RunStartEntry, agent="main", model="m", mode="ask")
        await self.log(
            MessageEntry, cursor=seq, message=UserMessage(content=[TextBlock(text="do it")], seqs=[seq])
        )
        reply = f"{self.name}e{self.number + 1}"
        blocks: list[Any] = [
            ToolCallBlock(call_id=f"{reply}_{n}", name=name, arguments={}, host=HOST)
            for n, name in enumerate(calls)
        ]
        await self.log(MessageEntry, cursor=seq, message=AssistantMessage(content=blocks, model="m"))
        self.cursor = seq
        return [block.call_id for block in blocks]

    async def request(self, call_id: str, name: str = "bash") -> None:
        call = ToolCall(call_id=call_id, session=self.name, name=name, arguments={}, workspace="", token="t")
        await self.bus.create(s.TOOLS, s.tool_request(HOST, call_id), msgspec.json.encode(call))

    async def request_in_parts(self, call_id: str, name: str) -> None:
        call = ToolCall(call_id=call_id, session=self.name, name=name, arguments={}, workspace="", token="t")
        parts = await write_parts(self.bus, HOST, call_id, msgspec.json.encode(call))
        await self.bus.create(s.TOOLS, s.tool_request(HOST, call_id), b"", {s.H_PARTS: parts})

    async def claim(self, call_id: str) -> None:
        claim = msgspec.json.encode(ToolClaim(by="executor", holder="e1"))
        await self.bus.create(s.TOOLS, s.tool_claim(HOST, call_id), claim)

    async def result(self, call_id: str) -> None:
        outcome = text_outcome("ok", "done", is_error=False)
        result = msgspec.json.encode(ToolResult(call_id=call_id, token="t", outcome=outcome))
        await self.bus.create(s.SESSIONS, s.mail(self.name, "result", call_id), result)


async def entries(bus: Bus, session: str) -> list[Entry]:
    return [decode_entry(record.data) async for record in bus.read(s.SESSIONS, s.session_log(session))]


async def outcomes(bus: Bus, session: str) -> dict[str, str]:
    found = [entry.message for entry in await entries(bus, session) if isinstance(entry, MessageEntry)]
    return {each.call_id: each.outcome.status for each in found if isinstance(each, ToolResultMessage)}


async def claimed_by(bus: Bus, call_id: str) -> str | None:
    record = await bus.last(s.TOOLS, s.tool_claim(HOST, call_id))
    return None if record is None else msgspec.json.decode(record.data, type=ToolClaim).by
