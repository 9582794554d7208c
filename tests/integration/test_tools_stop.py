"""An executor that is told to stop while it runs a call itself: what is known by then is not lost."""

import asyncio
from pathlib import Path

import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.protocol import subjects as s
from fairlead_common.received import Delivery, Headers
from fairlead_tools import main as tools_main
from tests.integration.tools_fixture import HOST, Host
from tests.support.nats_server import NatsServer
from tests.support.outcomes import text_of
from tests.support.waiting import until


class SlowBus(Bus):
    """A connection on which results take their time."""

    async def create(
        self, stream: str, subject: str, data: bytes, headers: Headers | None = None, *, point: str = ""
    ) -> int:
        if stream == s.SESSIONS:
            await asyncio.sleep(0.3)
        return await super().create(stream, subject, data, headers, point=point)


async def test_a_result_that_comes_while_the_executor_stops_is_written_before_it_ends(
    host: Host, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = '{"tools.nats": {"slow": {"subject": "demo.slow", "description": "Slow."}}}'
    monkeypatch.setenv("FAIRLEAD_OVERRIDES", overrides)
    for name, value in {
        "HOST": HOST,
        "EXECUTOR": "e1",
        "HOME": host.home,
        "WORKSPACE": host.workspace,
    }.items():
        monkeypatch.setenv(f"FAIRLEAD_{name}", str(value))
    asked: list[Delivery] = []
    await host.bus.subscribe("demo.slow", asked.append)
    bus = await SlowBus.connect(BusSettings(url=nats_server.url), name="e1")
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        parts = [tasks.create_task(part(stop)) for part in await tools_main.setup(bus)]
        call = await host.ask("nats__slow")
        await until(lambda: asked, "it is asked")
        stop.set()
        await host.bus.emit(asked[0].reply, b"worked")
        await asyncio.wait(parts, timeout=15)
    await bus.close()
    assert text_of(await host.result(call, within_s=10)) == "worked"
