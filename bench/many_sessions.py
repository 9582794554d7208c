"""An installation with many sessions: streams as agents leave them, written without agents.

Each session has one prompt, two records of a log and its row in the list. They changed one after the other
within the last hundred days. What the agent service makes of logs (runs, usage) is left to it.
"""

import asyncio
import time
from typing import Final

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import AssistantMessage, TextBlock, Usage, UserMessage
from fairlead_common.protocol.entries import Entry, MessageEntry, RunEndEntry, RunStartEntry
from fairlead_common.protocol.projections import SessionSummary, SessionUsage, session_key
from fairlead_common.session_log.records import encode_record

DAYS: Final = 100
AT_ONCE: Final = 400  # sessions between two looks at what is stored
EACH: Final = 3  # messages of a session in SESSIONS
WORDS: Final = (
    *("invoice", "harbour", "letter", "migration", "schema", "release", "battery", "forecast", "garden"),
    *("recipe", "parser", "report", "meeting", "travel", "budget", "cluster", "backup", "photo", "script"),
    *("network", "sensor", "lecture", "contract", "translation", "summary", "test"),
)
NEEDLE: Final = "zanzibar"  # in the title of every thousandth session
MODEL: Final = "openai/scripted"


async def fill(bus: Bus, count: int) -> None:
    """Write sessions 0 to `count - 1`, the oldest first; nobody else may write meanwhile."""
    now_ms = time.time_ns() // 1_000_000
    for first in range(0, count, AT_ONCE):
        seq = await bus.last_sequence(s.SESSIONS)
        for number in range(first, min(first + AT_ONCE, count)):
            at = now_ms - DAYS * 86_400_000 * (count - number) // count
            await _session(bus, number, seq + 1, at)
            seq += EACH
        async with asyncio.timeout(30):  # what was sent is not stored at once
            while await bus.last_sequence(s.SESSIONS) < seq:
                await asyncio.sleep(0.002)


async def start_consumers_at_end(bus: Bus) -> None:
    """What was written is settled: no agent is to be woken for it."""
    last = await bus.last_sequence(s.SESSIONS)
    info = await bus.api(f"CONSUMER.INFO.{s.SESSIONS}.{s.AGENTS_CONSUMER}")
    config = info["config"]
    assert isinstance(config, dict)
    await bus.api(f"CONSUMER.DELETE.{s.SESSIONS}.{s.AGENTS_CONSUMER}")
    config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": last + 1}
    wanted = {"stream_name": s.SESSIONS, "config": config, "action": "create"}
    await bus.api(f"CONSUMER.CREATE.{s.SESSIONS}.{s.AGENTS_CONSUMER}.{s.ALL_MAIL}", wanted)


def name_of(number: int) -> str:
    """A session as the page would name it."""
    return f"{(number * 2654435761) % (1 << 32):08x}-{number:012d}"


def title_of(number: int) -> str:
    """Three words, and the needle in every thousandth."""
    words = [WORDS[(number // step) % len(WORDS)] for step in (1, 7, 131)]
    return " ".join([*words, NEEDLE] if number % 1000 == 0 else words)


async def _session(bus: Bus, number: int, seq: int, at: int) -> None:
    session = name_of(number)
    said = f"{title_of(number)}: " + "what is to be done about it, and when? " * 2
    run, key = f"r{number}", f"k{number}"
    usage = Usage(input_tokens=900, output_tokens=60)
    begin: list[Entry] = [
        RunStartEntry(id=f"a{number}", run_id=run, ts=at, epoch=1, agent="main", model=MODEL, mode="ask"),
        MessageEntry(
            id=f"b{number}", parent_id=f"a{number}", run_id=run, ts=at, epoch=1, cursor=seq,
            message=UserMessage(content=[TextBlock(text=said)]),
        ),
    ]  # fmt: skip
    answer = AssistantMessage(content=[TextBlock(text=said * 3)], model=MODEL, usage=usage)
    end: list[Entry] = [
        MessageEntry(
            id=f"c{number}", parent_id=f"b{number}", run_id=run, ts=at, epoch=1, cursor=seq,
            message=answer, agent="main",
        ),
        RunEndEntry(
            id=f"d{number}", parent_id=f"c{number}", run_id=run, ts=at, epoch=1, cursor=seq,
            outcome="completed", turns=1, usage=usage, seqs=[seq], keys=[key], agent="main", model=MODEL,
        ),
    ]  # fmt: skip
    mail = msgspec.json.encode({"text": said, "key": key})
    await bus.emit(s.mail(session, "prompt", key), mail)
    for entries, phase in ((begin, "open"), (end, "closed")):
        data, headers = encode_record(entries)
        headers |= {"Fairlead-Id": entries[-1].id, s.H_CURSOR: str(seq), s.H_STATE: phase}
        await bus.emit(s.session_log(session), data, headers)
    row = SessionSummary(
        id=session, agent="main", title=title_of(number), mode="ask", model=MODEL, sandbox="local",
        created_at=at, updated_at=at, last_outcome="completed", preview=said,
        usage=SessionUsage(input_tokens=900, output_tokens=60, unpriced_replies=1), context_tokens=900,
        context_window=128_000, last_seq=seq + 2, news_seq=seq + 2,
        source="api" if number % 10 == 1 else "", archived=number % 10 == 2,
    )  # fmt: skip
    await bus.emit(s.kv(s.BUCKET_SESSIONS, session_key(session)), msgspec.json.encode(row))
