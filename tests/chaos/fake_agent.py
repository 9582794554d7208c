"""Ends the run of every prompt of a job after a while, as an agent's log would tell it; needs no model."""

import asyncio

from fairlead_common.bus import Bus
from fairlead_common.errors import FairleadError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import AssistantMessage, TextBlock, UserMessage
from fairlead_common.protocol.entries import MessageEntry, RunEndEntry
from fairlead_common.protocol.entry_base import EntryBase
from fairlead_common.protocol.entry_codec import encode_entry

THINKS_S = 0.8  # so long that schedulers die meanwhile

_PROMPTS = "fairlead.session.*.in.prompt.*"


async def answer_prompts(bus: Bus) -> None:
    """Until it is cancelled."""
    seen = 0
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                async for record in bus.read(s.SESSIONS, _PROMPTS, start=seen + 1):
                    mail = s.parse_session(record.subject)
                    tasks.create_task(_think(bus, mail.session, mail.key, record.seq))
                    seen = record.seq
            except FairleadError:
                await asyncio.sleep(0.1)  # the server is away
            await asyncio.sleep(0.05)


async def _think(bus: Bus, session: str, key: str, seq: int) -> None:
    await asyncio.sleep(THINKS_S)
    while True:
        try:
            await _answer(bus, session, key, seq)
        except FairleadError:
            await asyncio.sleep(0.1)
            continue
        return


async def _answer(bus: Bus, session: str, key: str, seq: int) -> None:
    run = f"run-{key}"
    said = UserMessage(content=[TextBlock(text="work")], seqs=[seq], keys=[key])
    done = AssistantMessage(content=[TextBlock(text=f"done {key}")], model="none")
    entries: list[EntryBase] = [
        MessageEntry(id=f"{key}-1", run_id=run, message=said, cursor=seq),
        MessageEntry(id=f"{key}-2", run_id=run, message=done),
        RunEndEntry(id=f"{key}-3", run_id=run, outcome="completed", seqs=[seq], keys=[key]),
    ]
    subject = s.session_log(session)
    for entry in entries:
        last = await bus.last(s.SESSIONS, subject)
        await bus.append(
            s.SESSIONS,
            subject,
            encode_entry(entry),  # type: ignore[arg-type] # all of them are entries
            record_id=entry.id,
            expected=last.seq if last else 0,
        )
