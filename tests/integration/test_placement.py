"""Where calls go: the sandbox that they ask for, and the host that gets them."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_common import subjects as s
from fairlead_common.bus import Bus
from fairlead_common.messages import CreateSession, UpdateSession
from tests.support.agent_world import World, agent_service, world
from tests.support.nats_server import NatsServer


@pytest.fixture
async def w(bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with world(bus, tmp_path, monkeypatch) as made:
        yield made


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
