"""An agent whose host does not offer its sandbox: said when it is configured, and mended by what was said."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects as s
from tests.integration.test_placement import announce, hosts_of_calls
from tests.support.agent_world import HOST, World, agent_service, world
from tests.support.command_line import Done, run_here
from tests.support.nats_server import NatsServer


class Used:
    """A deployment whose agent `main` has worked on `HOST`, and the owner's command line."""

    def __init__(self, world_: World, server: NatsServer, home: Path) -> None:
        self.world = world_
        self._environ = {"FAIRLEAD_NATS_URL": server.url, "FAIRLEAD_HOME": str(home)}

    async def cli(self, *words: str) -> Done:
        return await asyncio.to_thread(run_here, self._environ, *words)

    async def kept(self) -> str:
        stored = await Bucket(self.world.bus, s.BUCKET_WORKSPACES).get("agent.main")
        return stored.data.decode() if stored else ""


@pytest.fixture
async def used(
    bus: object, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Used]:
    async with world(bus, tmp_path, monkeypatch) as w:  # type: ignore[arg-type]
        await announce(w.bus, HOST, running=4)
        async with agent_service(nats_server, monkeypatch):
            await w.say("a", "op=P1 steps=1")
            await w.run_end("a")
            assert await hosts_of_calls(w, "a") == [HOST]
            yield Used(w, nats_server, tmp_path / "home")


def command_in(text: str) -> list[str]:
    """The words of the last command that a note names."""
    return str(re.findall(r"`fairlead ([^`]*)`", text)[-1]).split()


async def test_a_sandbox_of_another_host_is_said_when_set_and_the_command_that_is_named_mends_it(
    used: Used,
) -> None:
    await announce(used.world.bus, "boxes", sandboxes=["docker"])
    done = await used.cli("config", "set", "agents.main.sandbox", '{"kind": "docker"}')
    assert done.returncode == 0
    assert f"agent main works on host {HOST}, which offers local and not sandbox docker" in done.stderr
    rows = json.loads((await used.cli("agents", "ls", "--json")).stdout)
    assert (rows[0]["host"], bool(rows[0]["problem"])) == (HOST, True)
    words = command_in(done.stderr)
    assert words == ["agents", "place", "main", "--host", "boxes", "--force-empty"]
    careful = await used.cli(*words[:-1])
    assert careful.returncode == 1
    assert f"is on host {HOST}, and its files would stay there" in careful.stderr
    assert await used.kept() == HOST
    mended = await used.cli(*words)
    assert mended.returncode == 0, mended.stderr
    assert await used.kept() == "boxes"
    rows = json.loads((await used.cli("agents", "ls", "--json")).stdout)
    assert (rows[0]["host"], rows[0]["problem"]) == ("boxes", "")
    await asyncio.sleep(2.1)  # as long as an agent may remember where it was
    await used.world.say("b", "op=P2 steps=1")
    assert await hosts_of_calls(used.world, "b") == ["boxes"]


async def test_an_agent_with_a_host_of_its_own_is_told_to_change_that(used: Used) -> None:
    assert (await used.cli("config", "set", "agents.main.host", HOST)).returncode == 0
    await announce(used.world.bus, "boxes", sandboxes=["docker"])
    done = await used.cli("config", "set", "agents.main.sandbox.kind", "docker")
    refused = await used.cli("agents", "place", "main", "--host", "boxes", "--force-empty")
    assert refused.returncode == 1
    assert "fairlead config unset agents.main.host" in refused.stderr
    mended = await used.cli(*command_in(done.stderr))
    assert (mended.returncode, mended.stderr) == (0, "revision 3\n")


async def test_a_sandbox_that_no_host_offers_is_said_and_set(used: Used) -> None:
    done = await used.cli("config", "set", "agents.main.sandbox.kind", "docker")
    assert done.returncode == 0
    assert "which offers local and not sandbox docker" in done.stderr
    assert "agents place" not in done.stderr
    quiet = await used.cli("config", "set", "models.retries", "3")
    assert quiet.stderr == "revision 2\n"  # what a change does not concern is not said again


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody", "--host", "boxes"], "no agent 'nobody'; agents are main"),
        (["main", "--host", "nowhere"], "host nowhere accepts no new work; hosts that do: boxes"),
        (["main", "--host", "leaving"], "host leaving accepts no new work"),
        (["main", "--host", "small"], "host small offers bubblewrap and not sandbox local"),
    ],
)
async def test_a_place_that_would_not_work_is_refused(used: Used, words: list[str], said: str) -> None:
    await announce(used.world.bus, "boxes")
    await announce(used.world.bus, "leaving", draining=True)
    await announce(used.world.bus, "small", sandboxes=["bubblewrap"])
    refused = await used.cli("agents", "place", *words, "--force-empty")
    assert refused.returncode in (1, 2)
    assert said in refused.stderr
    assert await used.kept() == HOST


async def test_without_a_host_the_least_loaded_that_fits_is_taken(used: Used) -> None:
    await announce(used.world.bus, "busy", running=7)
    await announce(used.world.bus, "idle")
    assert (await used.cli("agents", "place", "main", "--force-empty")).returncode == 0
    assert await used.kept() == "idle"


def test_a_server_that_no_service_has_met_and_files_that_are_no_document_are_told(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    environ = {"FAIRLEAD_NATS_URL": nats_server.url, "FAIRLEAD_HOME": str(tmp_path / "home")}
    shown = run_here(environ, "agents", "ls")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "not placed yet" in shown.stdout.splitlines()[1]
    for content, said in ((b"\xff", "not UTF-8"), (b'{"a":' * 5000, "not JSON"), (b"[1]", "JSON object")):
        (tmp_path / "document").write_bytes(content)
        refused = run_here(environ, "config", "apply", str(tmp_path / "document"))
        assert refused.returncode == 2
        assert said in refused.stderr
