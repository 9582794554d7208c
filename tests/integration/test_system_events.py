"""System events and heartbeats in a session: lines for the next turn, and turns that no one asked for."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import AssistantMessage, ToolOutcome, UserMessage, text_outcome
from fairlead_common.protocol.custom_entries import HEARTBEAT_OK, HEARTBEAT_SKIPPED
from fairlead_common.protocol.entries import CustomEntry, Entry, RunEndEntry, RunStartEntry
from fairlead_common.protocol.messages import ToolCall
from fairlead_common.protocol.notices import HeartbeatNotice, SystemNotice
from fairlead_common.protocol.projections import SessionSummary
from tests.support.agent_world import World, agent_service
from tests.support.nats_server import NatsServer
from tests.support.scripted_model import read_log

QUIET: dict[str, object] = {"agents.main.heartbeat.prompt": "id=beat answer=HEARTBEAT_OK"}
LOUD: dict[str, object] = {"agents.main.heartbeat.prompt": 'id=beat answer="The oven is on"'}


async def tell(w: World, session: str, key: str, text: str) -> None:
    body = msgspec.json.encode(SystemNotice(text=text, source="test"))
    await w.bus.create(s.SESSIONS, s.mail(session, "notice", f"system-{key}"), body)


async def beat(w: World, session: str, key: str, **fields: Any) -> None:
    body = msgspec.json.encode(HeartbeatNotice(**fields))
    await w.bus.create(s.SESSIONS, s.mail(session, "notice", f"heartbeat-{key}"), body)


def customs(log: list[Entry], name: str) -> list[CustomEntry]:
    return [entry for entry in log if isinstance(entry, CustomEntry) and entry.name == name]


def texts(message: UserMessage) -> list[str]:
    return [block.text for block in message.content]  # type: ignore[union-attr] # no pictures here


async def summary(w: World, session: str) -> SessionSummary | None:
    record = await Bucket(w.bus, s.BUCKET_SESSIONS).get(f"session.{session}")
    return None if record is None else msgspec.json.decode(record.data, type=SessionSummary)


async def test_system_events_start_no_run_and_are_said_in_order_with_the_next_prompt_once(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_service(nats_server, monkeypatch):
        await tell(w, "a", "1", "the battery is low")
        await tell(w, "a", "2", "rain\nat noon")
        await w.wait_for("a", lambda log: len(customs(log, "system_event")) == 2)
        assert not [entry for entry in await w.log("a") if isinstance(entry, RunStartEntry)]
        await w.say("a", "op=P1 how are you")
        await w.run_end("a")
        await w.say("a", "op=P2")
        await w.run_end("a", 2)
    first, second = [m for m in await w.messages("a") if isinstance(m, UserMessage)]
    lines, said = texts(first)
    assert [line.partition("] ")[2] for line in lines.splitlines()[:2]] == ["the battery is low", "rain"]
    assert lines.startswith("System: [")
    assert lines.splitlines()[2] == "  at noon"
    assert said == "op=P1 how are you"
    assert texts(second) == ["op=P2"]
    shown = await summary(w, "a")
    assert shown is not None
    assert shown.title == "op=P1 how are you"


async def test_a_session_that_only_got_a_system_line_is_listed_with_what_its_first_run_will_have(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_service(nats_server, monkeypatch), asyncio.timeout(30):
        await tell(w, "a", "1", "the battery is low")
        while (shown := await summary(w, "a")) is None:
            await asyncio.sleep(0.02)
    assert (shown.agent, shown.mode, shown.model) == ("main", "allow-all", "openai/scripted")
    assert (shown.sandbox, shown.context_window > 0) == ("local", True)


async def test_a_wake_begins_a_run_with_the_lines_that_wait(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_service(nats_server, monkeypatch, settings=LOUD):
        await tell(w, "a", "1", "the timer rang")
        await beat(w, "a", "1", reason="wake")
        await beat(w, "a", "2", reason="wake")
        end = await w.run_end("a")
        assert end.outcome == "completed"
        assert "heartbeat-1" in end.keys
        log = await w.wait_for("a", lambda log: _settled(log, "heartbeat-1", "heartbeat-2"))
    user, answer = (await w.messages("a"))[:2]
    assert user.source == "system"
    assert "the timer rang" in texts(user)[0]
    assert answer.text.strip() == "The oven is on"
    assert sum(isinstance(entry, RunStartEntry) for entry in log) == 1  # the second found nothing to do


def _settled(log: list[Entry], *keys: str) -> bool:
    ended = [key for entry in log if isinstance(entry, RunEndEntry) for key in entry.keys]
    skipped = [key for entry in customs(log, HEARTBEAT_SKIPPED) for key in entry.data["keys"]]  # type: ignore[attr-defined]
    return set(keys) <= set(ended + skipped)


async def test_a_heartbeat_with_nothing_to_do_asks_no_model(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_service(nats_server, monkeypatch):
        await beat(w, "a", "1")
        log = await w.wait_for("a", lambda log: _settled(log, "heartbeat-1"))
        assert not [entry for entry in log if isinstance(entry, RunStartEntry)]
        await beat(w, "a", "2", force=True)
        await w.run_end("a")


async def test_a_heartbeat_with_a_file_is_shown_the_file(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.files["HEARTBEAT.md"] = b"check the oven"
    async with agent_service(nats_server, monkeypatch, settings=LOUD):
        await beat(w, "a", "1")
        await w.run_end("a")
    assert "HEARTBEAT.md:\n\ncheck the oven" in texts((await w.messages("a"))[0])[0]


async def test_an_acknowledged_heartbeat_is_kept_from_people_and_from_the_conversation(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with agent_service(nats_server, monkeypatch, settings=QUIET):
        await w.say("a", "op=P1")
        await w.run_end("a")
        before = await _shown(w, 1)
        await beat(w, "a", "1", force=True)
        await w.run_end("a", 2)
        after = await _shown(w, 2)
        (mark,) = customs(await w.log("a"), HEARTBEAT_OK)
        assert len(mark.data["entries"]) == 2  # type: ignore[arg-type]
        assert (after.preview, after.updated_at, after.title) == (
            before.preview,
            before.updated_at,
            before.title,
        )
        await w.say("a", "op=P3")
        await w.run_end("a", 3)
    requests = [line for line in read_log(tmp_path / "model.jsonl") if line["event"] == "request"]
    assert requests[-1]["seen"] == ["P1", "P3"]  # the next turn knows nothing of the heartbeat
    assert requests[-2]["seen"] == ["P1", "beat"]


async def _shown(w: World, ends: int) -> SessionSummary:
    """What lists show once they are up to date with that many runs."""
    await w.run_end("a", ends)
    last = await w.bus.last(s.SESSIONS, s.session_log("a"))
    assert last is not None
    async with asyncio.timeout(10):
        while (shown := await summary(w, "a")) is None or shown.last_seq < last.seq or shown.status != "idle":
            await asyncio.sleep(0.02)
    return shown


async def test_a_heartbeat_that_says_more_is_a_message_like_any_other(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_service(nats_server, monkeypatch, settings=LOUD):
        await beat(w, "a", "1", force=True)
        await w.run_end("a")
        shown = await _shown(w, 1)
    assert not customs(await w.log("a"), HEARTBEAT_OK)
    assert shown.preview.strip() == "The oven is on"


async def test_a_busy_session_drops_a_regular_heartbeat_and_keeps_a_wake_until_it_is_idle(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold = asyncio.Event()

    async def slow(_: ToolCall) -> ToolOutcome:
        await hold.wait()
        return text_outcome("ok", "done", is_error=False)

    w.tool = slow
    async with agent_service(nats_server, monkeypatch, settings=LOUD):
        await w.say("a", "op=P1 steps=1")
        await w.call_runs()
        await beat(w, "a", "regular")
        await tell(w, "a", "1", "the timer rang")
        await beat(w, "a", "urgent", reason="wake")
        log = await w.wait_for("a", lambda log: _settled(log, "heartbeat-regular"))
        assert customs(log, HEARTBEAT_SKIPPED)[0].data["why"] == "the session is busy"
        assert not [entry for entry in log if isinstance(entry, RunEndEntry)]
        hold.set()
        end = await w.run_end("a", 2)
    assert end.keys == ["heartbeat-urgent"]
    answers = [m.text.strip() for m in await w.messages("a") if isinstance(m, AssistantMessage) and m.text]
    assert answers == ["done P1", "The oven is on"]


async def test_wakes_that_came_while_nobody_was_there_are_not_lost(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tell(w, "a", "1", "the timer rang")
    await beat(w, "a", "1", reason="wake")
    async with agent_service(nats_server, monkeypatch, settings=LOUD):
        await w.run_end("a")
    assert "the timer rang" in texts((await w.messages("a"))[0])[0]
    assert await w.bus.last(s.SESSIONS, s.session_log("a"))


async def test_a_heartbeat_may_have_a_model_of_its_own(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**LOUD, "agents.main.heartbeat.model": "openai/cheap"}
    async with agent_service(nats_server, monkeypatch, settings=settings):
        await w.say("a", "op=P1")
        await w.run_end("a")
        await beat(w, "a", "1", force=True)
        await w.run_end("a", 2)
    models = [m.model for m in await w.messages("a") if isinstance(m, AssistantMessage)]
    assert models == ["openai/scripted", "openai/cheap"]
