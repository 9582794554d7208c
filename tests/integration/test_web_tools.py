"""The web tools end to end: a scripted model asks, an executor fetches, the model reads what came of it."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.bus.objects import Objects
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import TextBlock, ToolResultMessage
from fairlead_common.protocol.messages import ExecutorInfo
from tests.integration.tools_fixture import HOST, Host
from tests.support.agent_world import World, agent_service
from tests.support.nats_server import NatsServer
from tests.support.outcomes import text_of
from tests.support.scripted_model import ScriptedModel
from tests.support.waiting import until
from tests.support.web_victim import answer, victim

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001e221bc33"
    "0000000049454e44ae426082"
)


async def configure(bus: Bus, **web: object) -> None:
    document = {"tools": {"web": web}}
    await Bucket(bus, s.BUCKET_CONFIG).put("document", msgspec.json.encode(document))


async def offered(bus: Bus) -> set[str]:
    record = await Bucket(bus, s.BUCKET_EXECUTORS).get(f"{HOST}.e1")
    return (
        set()
        if record is None
        else {t.name for t in msgspec.json.decode(record.data, type=ExecutorInfo).tools}
    )


async def results(world: World, session: str) -> list[ToolResultMessage]:
    return [message for message in await world.messages(session) if isinstance(message, ToolResultMessage)]


def said(result: ToolResultMessage) -> str:
    return "".join(block.text for block in result.outcome.content if isinstance(block, TextBlock))


async def test_model_reads_an_allowed_page_and_is_told_why_metadata_is_refused(
    host: Host, bus: Bus, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (
        "<html><head><title>News</title></head><body><article><h1>Tides</h1>"
        "<p>High water at 11:42, says the harbour.</p></article></body></html>"
    )
    model = await ScriptedModel(tmp_path / "model.jsonl").start()
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    world = World(bus, model)
    async with victim(answer(page, "text/html")) as server:
        await configure(bus, allow_private=[f"127.0.0.1:{server.port}"])
        await host.started()
        settings: dict[str, object] = {"agents.main.mode": "safe"}
        async with agent_service(nats_server, monkeypatch, settings=settings):
            url = f"http://127.0.0.1:{server.port}/tides"
            await world.say("a", f'op=P1 steps=1 tool=web_fetch args={{"url":"{url}"}}')
            assert (await world.run_end("a")).outcome == "completed"
            metadata = "http://169.254.169.254/latest/meta-data/"
            await world.say("a", f'op=P2 steps=1 tool=web_fetch args={{"url":"{metadata}"}}')
            assert (await world.run_end("a", 2)).outcome == "completed"
    await model.stop()
    read, refused = await results(world, "a")
    assert (read.outcome.status, read.outcome.is_error) == ("ok", False)
    assert "High water at 11:42" in said(read)
    assert said(read).startswith(f"Web page {url}, fetched 20")
    assert "never instructions" in said(read)
    assert read.outcome.details["title"] == "News"
    assert (refused.outcome.status, refused.outcome.is_error) == ("error", True)
    assert said(refused).startswith("refused: 169.254.169.254 (cloud metadata).")
    assert server.paths() == ["/tides"]


async def test_change_of_the_configuration_reaches_a_running_executor(host: Host, bus: Bus) -> None:
    async with victim() as server:
        url = f"http://127.0.0.1:{server.port}/"
        await host.started()
        assert (await host.run("web_fetch", url=url)).is_error
        assert server.connections == 0
        await configure(bus, allow_private=[f"127.0.0.1:{server.port}"])
        outcome = await host.run("web_fetch", url=url)
        for _ in range(200):
            if not outcome.is_error:
                break
            outcome = await host.run("web_fetch", url=url)
        assert "hello from the victim" in text_of(outcome)
        before = server.connections
        assert "hello from the victim" in text_of(await host.run("web_fetch", url=url))
        assert server.connections == before  # from memory
        await configure(bus, enabled=False, search={"provider": "none"})
        names = await offered(bus)
        for _ in range(300):
            if "web_fetch" not in names:
                break
            outcome = await host.run("ls")
            names = await offered(bus)
        assert not names & {"web_fetch", "web_search"}
        assert "There is no tool 'web_fetch'" in text_of(await host.run("web_fetch", url=url))


async def test_picture_lies_in_the_object_store(host: Host, bus: Bus) -> None:
    async with victim(answer(PNG, "image/png")) as server:
        await configure(bus, allow_private=[f"127.0.0.1:{server.port}"])
        await host.started()
        outcome = await host.run("web_fetch", url=f"http://127.0.0.1:{server.port}/a.png")
    words, picture = outcome.content
    assert picture.media_type == "image/png"  # type: ignore[union-attr]
    assert await Objects(bus).get(picture.object) == PNG  # type: ignore[union-attr]
    assert "never instructions" in words.text  # type: ignore[union-attr]


async def test_fetch_under_way_ends_when_it_is_cancelled(host: Host, bus: Bus) -> None:
    async def never(_: str, writer: object) -> None:
        await asyncio.sleep(60)

    async with victim(never) as server:
        await configure(bus, allow_private=[f"127.0.0.1:{server.port}"])
        await host.started()
        call = await host.ask("web_fetch", url=f"http://127.0.0.1:{server.port}/")
        await until(lambda: server.connections, "it is fetched")
        await bus.emit(s.cancel(call.call_id), b"")
        assert (await host.result(call)).status == "cancelled"


async def test_executor_loads_an_http_client_only_when_it_fetches(host: Host, bus: Bus) -> None:
    """It would be a quarter of the memory of an executor that never does."""
    async with victim() as server:
        await configure(bus, allow_private=[f"127.0.0.1:{server.port}"])
        process = await host.started()
        maps = Path(f"/proc/{process.pid}/maps")
        assert "aiohttp" not in maps.read_text()
        await host.run("web_fetch", url=f"http://127.0.0.1:{server.port}/")
        assert "aiohttp" in maps.read_text()
        assert "lxml" not in maps.read_text()


async def test_search_provider_without_its_key_is_told_to_those_who_run_it(host: Host, bus: Bus) -> None:
    await configure(bus, search={"provider": "brave", "key": {"from_env": "NO_SUCH_KEY"}})
    await host.started()
    async with asyncio.timeout(20):
        while (record := await Bucket(bus, s.BUCKET_EXECUTORS).get(f"{HOST}.e1")) is None:
            await asyncio.sleep(0.05)
    warnings = msgspec.json.decode(record.data, type=ExecutorInfo).warnings
    assert warnings == [
        "web_search: tools.web.search.key: the environment of the executor has no NO_SUCH_KEY"
    ]
    outcome = await host.run("web_search", query="knots")
    assert outcome.is_error
    assert "NO_SUCH_KEY" in text_of(outcome)
