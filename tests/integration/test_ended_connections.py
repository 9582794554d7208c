"""What a connection held is freed when it ends, without the garbage collector.

A gateway with many connections collects old garbage seldom, since everything stands still meanwhile.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from fairlead_common.bus import Bus
from fairlead_gateway.http import sse
from fairlead_gateway.websocket import connection
from tests.integration.gateway_fixture import FakeAgent, RunningGateway
from tests.support.slow_readers import Ask, get, reads_nothing
from tests.support.waiting import until

ENTRIES = 30
READERS = 5
OF_CONNECTIONS = {"Tail", "EventStream", "Completion", "SocketConnection", "Subscription"}


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def held() -> Counter[str]:
    """What there is of connections."""
    names = (type(each).__name__ for each in gc.get_objects())
    return Counter(name for name in names if name in OF_CONNECTIONS)


@pytest.mark.parametrize("is_dropped", [True, False], ids=["dropped", "left"])
@pytest.mark.parametrize("ask", ["events", "websocket", "response"])
async def test_a_connection_that_ended_leaves_nothing(
    ask: Ask,
    is_dropped: bool,
    gateway: RunningGateway,
    bus: Bus,
    monkeypatch: pytest.MonkeyPatch,
    without_collector: None,
) -> None:
    patience_s = 0.5 if is_dropped else 60.0
    for module in (sse, connection):
        monkeypatch.setattr(module, "SEND_WITHIN_S", patience_s)
    body = {"model": "main", "input": "hello", "background": True}
    made = await gateway.http.post("/v1/responses", json=body)
    agent = FakeAgent(bus, made.headers["x-fairlead-session"])
    seq, _ = await agent.mail()
    await agent.begin([seq])
    for number in range(ENTRIES):
        await agent.reply(f"m{number}", "x" * 100_000)
    before = held()
    name = str(made.json()["id"]) if ask == "response" else agent.session
    async with AsyncExitStack() as stack:
        for _ in range(READERS):
            await stack.enter_async_context(reads_nothing(gateway.port, ask, name))
        await until(lambda: sum((held() - before).values()) >= READERS, "all are answered")
        if is_dropped:
            await until(lambda: len(gateway.gateway.streams) == 0, "all were dropped")
    await until(lambda: not held() - before, lambda: f"nothing is left of {held() - before}")


async def test_a_viewer_that_left_leaves_nothing(gateway: RunningGateway, without_collector: None) -> None:
    session, before = await gateway.session(), held()
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, "127.0.0.1", gateway.port
    )
    transport.write(get(f"/api/sessions/{session}/events?after=-1"))
    await until(lambda: (held() - before)["Subscription"] >= 3, "it follows the session")
    transport.abort()
    await until(lambda: not held() - before, lambda: f"nothing is left of {held() - before}")
