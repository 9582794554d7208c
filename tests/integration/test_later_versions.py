"""An agent of today on what a later version has written: it goes on, and nothing of it is lost."""

import asyncio

import msgspec
import pytest
import structlog

from fairlead_agent import worker
from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.entries import MessageEntry
from fairlead_common.protocol.messages import ExecutorInfo
from tests.support.agent_world import HOST, SPECS, World, agent_service
from tests.support.nats_server import NatsServer


@pytest.mark.parametrize(
    "kind", ["outcome of a run", "block of a message", "type of an entry", "format of a record"]
)
async def test_a_session_with_a_value_of_a_later_version_is_let_go_and_loses_nothing(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(worker, "RELEASED_S", 0.5)
    async with agent_service(nats_server, monkeypatch):
        await w.say("a", "op=P1 steps=1")
        await w.run_end("a")
    last = await w.bus.last(s.SESSIONS, s.session_log("a"))
    assert last
    end = msgspec.json.decode(last.data)
    about = {"id": "later1", "parent_id": end["id"], "epoch": 7, "cursor": end["cursor"]}
    smell = {"role": "user", "content": [{"type": "smell"}]}
    kinds: dict[str, dict[str, object]] = {
        "outcome of a run": {"type": "run_end", "outcome": "asleep"},
        "block of a message": {"type": "message", "message": smell},
        "type of an entry": {"type": "handover", "to": [1]},
        "format of a record": {"type": "mode_change", "mode": "ask"},
    }
    entry = kinds[kind]
    headers = {s.H_CURSOR: str(end["cursor"]), s.H_STATE: "closed"}
    if kind == "format of a record":
        headers[s.H_FORMAT] = "3"
    stored = msgspec.json.encode(entry | about)
    await w.bus.append(
        s.SESSIONS, s.session_log("a"), stored, record_id="later1", expected=last.seq, headers=headers
    )
    before = [record.data async for record in w.bus.read(s.SESSIONS, s.session_log("a"))]
    with structlog.testing.capture_logs() as logs:
        async with agent_service(nats_server, monkeypatch, "agent-2"):
            await w.say("a", "op=P2 steps=1")
            await w.say("b", "op=P3 steps=1")
            assert (await w.run_end("b")).outcome == "completed"
            async with asyncio.timeout(40):  # it is tried again, at its own pace
                while sum(line["event"] == "session_released" for line in logs) < 2:
                    await asyncio.sleep(0.05)
    released = [line for line in logs if line["event"] == "session_released"]
    assert all(line["log_level"] == "warning" and line["session"] == "a" for line in released)
    reason = {"type of an entry": "unknown type", "format of a record": "format '3'"}.get(kind, "Invalid")
    assert reason in released[0]["why"]
    assert [record.data async for record in w.bus.read(s.SESSIONS, s.session_log("a"))] == before
    mail = [record.seq async for record in w.bus.read(s.SESSIONS, s.session_mail("a"))]
    assert mail[-1] > end["cursor"]  # the prompt waits for a worker that knows
    assert [record async for record in w.bus.read(s.DEAD, "fairlead.dead.*")] == []


async def test_mail_of_a_later_kind_is_kept_as_a_dead_letter_and_stops_nobody(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.bus.publish("fairlead.session.a.in.teleport.k1", b'{"to":"mars"}')
    await w.bus.publish("fairlead.session.a.in.notice.teleport-k2", b'{"to":"venus"}')
    async with agent_service(nats_server, monkeypatch):
        await w.say("a", "op=P1 steps=1")
        assert (await w.run_end("a")).outcome == "completed"
    letters = [msgspec.json.decode(record.data) async for record in w.bus.read(s.DEAD, "fairlead.dead.*")]
    assert {letter["payload"] for letter in letters} == {'{"to":"mars"}', '{"to":"venus"}'}
    assert all("teleport" in letter["reason"] for letter in letters)


async def test_tools_and_settings_of_a_later_version_are_used_as_far_as_they_are_known(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = msgspec.to_builtins(
        ExecutorInfo(executor="e1", host=HOST, tools=SPECS, default_workspace="/workspace")
    )
    info["colour"] = "blue"
    for spec in info["tools"]:
        spec["cost"] = {"usd": 1}
    await Bucket(w.bus, s.BUCKET_EXECUTORS).put(f"{HOST}.e1", msgspec.json.encode(info), ttl_s=60)
    document = b'{"planets":{"mars":1},"agents":{"main":{"description":"known","moons":2}}}'
    await Bucket(w.bus, s.BUCKET_CONFIG).put("document", document)
    async with agent_service(nats_server, monkeypatch):
        await w.say("a", "op=P1 steps=1")
        assert (await w.run_end("a")).outcome == "completed"
        async with asyncio.timeout(20):
            while not w.calls:
                await asyncio.sleep(0.01)
    record = await w.bus.last("KV_config", s.kv(s.BUCKET_CONFIG, "document"))
    assert record
    assert record.data == document
    assert any(isinstance(entry, MessageEntry) for entry in await w.log("a"))
