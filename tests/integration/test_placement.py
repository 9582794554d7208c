"""Where calls go: the sandbox that they ask for, and the host that gets them."""

import asyncio
from typing import Any

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.bus.generation_reads import is_live
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolOutcome,
    ToolResultMessage,
)
from fairlead_common.protocol.entries import DroppedEntry, Entry, MessageEntry
from fairlead_common.protocol.messages import ExecutorInfo, ToolCall
from fairlead_common.protocol.notices import CreateSession, MoveSession, UpdateSession
from fairlead_common.protocol.settings_entries import SessionInfoEntry
from tests.support.agent_world import HOST, SPECS, World, agent_service, say_hi
from tests.support.nats_server import NatsServer


async def notice(bus: Bus, session: str, name: str, body: msgspec.Struct) -> None:
    await bus.create(s.SESSIONS, s.mail(session, "notice", name), msgspec.json.encode(body))


async def test_calls_carry_the_sandbox_of_the_profile_and_of_the_session(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, object] = {
        "agents.main.sandbox.kind": "bubblewrap",
        "agents.main.sandbox.when": "non-main",
    }
    async with agent_service(nats_server, monkeypatch, settings=settings):
        await w.say("main", "op=P1 steps=1")
        await w.run_end("main")
        await w.say("other", "op=P2 steps=1")
        await w.run_end("other")
        await notice(w.bus, "strict", "create", CreateSession(sandbox="docker"))
        await w.say("strict", "op=P3 steps=1")
        await w.run_end("strict")
        await notice(w.bus, "strict", "update-1", UpdateSession(sandbox="local"))  # as a forged one would be
        await w.say("strict", "op=P4 steps=1")
        await w.run_end("strict", 2)
    assert [(call.session, call.sandbox, call.scope) for call in w.calls] == [
        ("main", "local", "session-main"),
        ("other", "bubblewrap", "session-other"),
        ("strict", "docker", "session-strict"),
        ("strict", "bubblewrap", "session-strict"),
    ]


async def announce(bus: Bus, host: str, **fields: Any) -> None:
    info = ExecutorInfo(
        **{"executor": "e1", "host": host, "tools": SPECS, "default_workspace": "/w", **fields}
    )
    key = f"{host}.{info.executor}"
    await Bucket(bus, s.BUCKET_EXECUTORS).put(key, msgspec.json.encode(info), ttl_s=60)


async def hosts_of_calls(w: World, session: str) -> list[str | None]:
    """The hosts that the calls of a session were addressed to, one of each message."""
    log = await w.wait_for(session, lambda log: any(_calls(entry) for entry in log))
    return [call.host for entry in log for call in _calls(entry)]


def _calls(entry: Entry) -> list[ToolCallBlock]:
    message = entry.message if isinstance(entry, MessageEntry) else None
    return message.tool_calls if isinstance(message, AssistantMessage) else []


async def results(w: World, session: str) -> list[str]:
    return [
        "".join(block.text for block in message.outcome.content if isinstance(block, TextBlock))
        for message in await w.messages(session)
        if isinstance(message, ToolResultMessage)
    ]


async def test_agent_is_placed_on_the_least_loaded_host_that_offers_its_sandbox_and_stays(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = ["local", "docker"]
    await announce(w.bus, HOST, running=4, sandboxes=both)
    await announce(w.bus, "idle", sandboxes=["local"])
    await announce(w.bus, "busy", running=7, sandboxes=both)
    await announce(w.bus, "leaving", sandboxes=both, draining=True)
    await announce(w.bus, "special", sandboxes=both, pool="gpu")
    settings: dict[str, object] = {"agents.main.sandbox.kind": "docker"}
    async with agent_service(nats_server, monkeypatch, settings=settings):
        await w.say("a", "op=P1 steps=1")
        await w.run_end("a")
        assert await hosts_of_calls(w, "a") == [HOST]
        await announce(w.bus, "idle", sandboxes=both)
        await announce(w.bus, HOST, running=8, sandboxes=both)
        await w.say("b", "op=P2 steps=1")
        await w.run_end("b")
        assert await hosts_of_calls(w, "b") == [HOST]
    async with agent_service(nats_server, monkeypatch, "agent-2", settings=settings):
        await w.say("c", "op=P3 steps=1")
        await w.run_end("c")
        assert await hosts_of_calls(w, "c") == [HOST]
    stored = await Bucket(w.bus, s.BUCKET_WORKSPACES).get("agent.main")
    assert stored is not None
    assert stored.data == HOST.encode()


async def test_the_place_of_an_agent_is_read_at_the_beginning_of_a_run_and_not_at_each_turn(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_agent.tools.placement.REMEMBERED_S", 0.0)  # as if each turn took longer
    reads = 0
    last = Bucket.last

    async def counted(bucket: Bucket, key: str) -> Any:
        nonlocal reads
        reads += key == "agent.main"
        return await last(bucket, key)

    monkeypatch.setattr(Bucket, "last", counted)
    async with agent_service(nats_server, monkeypatch):
        await w.say("a", "op=P1 steps=5")
        assert (await w.run_end("a")).turns == 6
        assert reads == 1
        await announce(w.bus, "elsewhere")
        await Bucket(w.bus, s.BUCKET_WORKSPACES).put("agent.main", b"elsewhere")
        await w.say("b", "op=P2 steps=1")
        assert await hosts_of_calls(w, "b") == ["elsewhere"]
        assert reads == 2


async def test_the_next_turn_goes_where_an_agent_was_placed_when_its_host_is_not_heard_any_more(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_agent.tools.placement.REMEMBERED_S", 0.0)
    monkeypatch.setattr("fairlead_agent.tools.catalog.FRESH_S", -1.0)
    await announce(w.bus, "elsewhere")

    async def move(call: ToolCall) -> ToolOutcome:
        await Bucket(w.bus, s.BUCKET_WORKSPACES).put("agent.main", b"elsewhere")
        return await say_hi(call)

    w.tool = move
    await Bucket(w.bus, s.BUCKET_WORKSPACES).put("agent.main", HOST.encode())
    async with agent_service(nats_server, monkeypatch):
        await w.say("a", "op=P1 steps=2")
        log = await w.wait_for("a", lambda log: sum(bool(_calls(entry)) for entry in log) == 2)
        assert [call.host for entry in log for call in _calls(entry)] == [HOST, "elsewhere"]


async def test_agent_goes_only_where_its_pool_and_labels_are(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await announce(w.bus, HOST, running=7, pool="gpu", labels={"gpu": "yes"})
    await announce(w.bus, "other", pool="gpu", labels={"gpu": "no"})
    await announce(w.bus, "plain", labels={"gpu": "yes"})
    settings: dict[str, object] = {"agents.main.pool": "gpu", "agents.main.labels": {"gpu": "yes"}}
    async with agent_service(nats_server, monkeypatch, settings=settings):
        await w.say("a", "op=P1 steps=1")
        await w.run_end("a")
    assert await hosts_of_calls(w, "a") == [HOST]


async def test_every_session_gets_a_scratch_of_its_own_and_its_host_is_told_when_it_is_deleted(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, object] = {"agents.main.workspace_kind": "scratch"}
    bucket = Bucket(w.bus, s.BUCKET_WORKSPACES)
    async with agent_service(nats_server, monkeypatch, settings=settings):
        for session in ("a", "b"):
            await w.say(session, "op=P1 steps=2")
            await w.run_end(session)
        by_session = {call.session: call for call in w.calls}
        assert len(w.calls) == 4
        assert len({call.workspace for call in w.calls}) == 2
        assert {call.workspace_kind for call in w.calls} == {"scratch"}
        gone = s.workspace_gone(HOST, by_session["a"].workspace)
        assert await bucket.get(gone) is None
        await w.bus.create(s.SESSIONS, s.mail("a", "notice", "delete"), b"{}")
        async with asyncio.timeout(10):
            while await is_live(w.bus, "a"):
                await asyncio.sleep(0.02)
        assert await bucket.get(gone) is not None
        assert await bucket.get(s.workspace_gone(HOST, by_session["b"].workspace)) is None
        await w.say("a", "op=P1 steps=1")
        await w.run_end("a")
        assert w.calls[-1].workspace not in {call.workspace for call in w.calls[:-1]}


async def test_session_whose_host_is_lost_is_told_so_and_goes_on_elsewhere_when_it_is_moved(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await announce(w.bus, "lost", running=0)
    await announce(w.bus, HOST, running=8)
    settings: dict[str, object] = {"agents.main.workspace_kind": "scratch", "tools.lost_host_s": 1}
    async with agent_service(nats_server, monkeypatch, settings=settings):
        await w.say("a", "op=P1 steps=1")
        assert await hosts_of_calls(w, "a") == ["lost"]
        await Bucket(w.bus, s.BUCKET_EXECUTORS).delete("lost.e1")
        monkeypatch.setattr("fairlead_agent.tools.catalog.FRESH_S", 0.5)
        heartbeat = asyncio.create_task(_beat(w))
        await w.run_end("a")
        assert [text[:38] for text in await results(w, "a")] == ["Not started: no heartbeat of host lost"]
        await notice(w.bus, "a", "move-1", MoveSession(host=HOST))
        await w.say("a", "op=P2 steps=1")
        await w.run_end("a", 2)
        heartbeat.cancel()
    assert await hosts_of_calls(w, "a") == ["lost", HOST]
    assert [call.session for call in w.calls] == ["a"]


async def _beat(w: World) -> None:
    while True:
        await announce(w.bus, HOST, running=8)
        await asyncio.sleep(0.2)


async def test_folder_of_an_agent_is_left_behind_only_by_force(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await announce(w.bus, HOST, running=1)
    monkeypatch.setattr("fairlead_agent.tools.catalog.FIRST_WORD_S", 0.5)  # of `other`, which never says one
    async with agent_service(nats_server, monkeypatch):
        await w.say("a", "op=P1 steps=1")
        await w.run_end("a")
        await notice(w.bus, "a", "move-1", MoveSession(host="other"))
        log = await w.wait_for("a", lambda log: isinstance(log[-1], DroppedEntry))
        assert "folder of its host" in log[-1].reason  # type: ignore[union-attr]
        await notice(w.bus, "a", "move-2", MoveSession(host="other", force_empty=True))
        await w.wait_for("a", lambda log: isinstance(log[-1], SessionInfoEntry) and log[-1].placement)
        await w.say("a", "op=P2 steps=1")
        await w.wait_for("a", lambda log: sum(len(_calls(entry)) for entry in log) == 2)
        assert await hosts_of_calls(w, "a") == [HOST, "other"]
        await w.abort("a")
        await w.run_end("a", 2)


async def test_session_works_in_the_folder_that_it_asked_for(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await announce(w.bus, HOST)
    await announce(w.bus, "mine", default_workspace="/other")
    async with agent_service(nats_server, monkeypatch):
        await notice(w.bus, "own", "create", CreateSession(workspace="/home/me/project", host="mine"))
        await w.say("own", "op=P1 steps=1")
        assert await hosts_of_calls(w, "own") == ["mine"]
        await notice(w.bus, "own", "move-1", MoveSession(host=HOST, force_empty=True))
        await w.abort("own")
        await w.run_end("own")
        await w.say("own", "op=P2 steps=1")
        await w.run_end("own", 2)
    assert [(call.workspace, call.workspace_kind) for call in w.calls] == [("/home/me/project", "folder")]
