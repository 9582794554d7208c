"""Clients that ask for a long log or a long response and read nothing: they cost the gateway little."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fairlead_common.protocol import subjects
from fairlead_common.received import Record
from tests.integration.gateway_fixture import FakeAgent
from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.slow_readers import Ask, reads_nothing
from tests.support.waiting import until

ENTRIES = 40
ENTRY_BYTES = 250_000
COMPLETIONS = 30
DROPPED_WITHIN_S = 120.0  # 20 s, on a machine with nothing else to do


async def long_response(gateway: GatewayProcess) -> tuple[str, str]:
    """A response of ten megabytes and its session: their ids."""
    body = {"model": "main", "input": "hello", "background": True}
    made = await gateway.http.post("/v1/responses", json=body)
    assert made.status_code == 200, made.text
    agent = FakeAgent(gateway.bus, made.headers["x-fairlead-session"])
    seq, _ = await agent.mail()
    await agent.begin([seq])
    for number in range(ENTRIES):
        await agent.reply(f"m{number}", "a word " * (ENTRY_BYTES // 7))
    return str(made.json()["id"]), agent.session


async def settled_mb(gateway: GatewayProcess) -> float:
    """The most memory that the gateway takes until it does not grow any more."""
    most, steady = gateway.memory_mb(), 0
    async with asyncio.timeout(60):
        while steady < 6:
            await asyncio.sleep(0.25)
            now = gateway.memory_mb()
            steady = steady + 1 if now < most + 1 else 0
            most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("ask", "readers", "most_kb"),
    [
        ("events", 60, 400),
        ("websocket", 60, 800),  # a message is one frame, and waits whole
        ("response", 20, 2000),
        ("entries", 40, 5000),  # an answer is in memory whole: there are few such at a time
        ("flood", 40, 10_000),
        ("mcp", 40, 2000),  # the end of the log alone
    ],
)
async def test_a_client_that_reads_nothing_costs_little(
    ask: Ask, readers: int, most_kb: int, tmp_path: Path
) -> None:
    async with gateway_process(tmp_path / "home") as gateway, AsyncExitStack() as stack:
        response, session = await long_response(gateway)
        await gateway.http.get(f"/api/sessions/{session}/entries?limit=1")
        await gateway.http.post("/mcp", json={})  # loads its package
        before = await settled_mb(gateway)
        for _ in range(readers):
            name = response if ask == "response" else session
            await stack.enter_async_context(reads_nothing(gateway.port, ask, name))
        grown_kb = (await settled_mb(gateway) - before) * 1000 / readers
        assert (await gateway.http.get("/api/me")).status_code == 200
    assert grown_kb < most_kb, f"{grown_kb:.0f} KB for each of {readers}"


async def test_a_client_that_reads_nothing_of_its_completion_costs_little_and_is_dropped(
    tmp_path: Path,
) -> None:
    async with gateway_process(tmp_path / "home") as gateway, AsyncExitStack() as stack:
        connected, before = await gateway.connections(), await settled_mb(gateway)
        for number in range(COMPLETIONS):
            await stack.enter_async_context(reads_nothing(gateway.port, "chat", f"prompt {number}"))
        for prompt in await until(lambda: prompts(gateway), "all are accepted"):
            agent = FakeAgent(gateway.bus, subjects.parse_session(prompt.subject).session)
            await agent.begin([prompt.seq])
            for number in range(8):
                await agent.reply(f"m{number}", "a word " * (ENTRY_BYTES // 7))
        grown_kb = (await settled_mb(gateway) - before) * 1000 / COMPLETIONS
        assert grown_kb < 2000, f"{grown_kb:.0f} KB for each of {COMPLETIONS}"
        async with asyncio.timeout(DROPPED_WITHIN_S):
            while await gateway.connections() > connected:
                await asyncio.sleep(0.5)


async def prompts(gateway: GatewayProcess) -> list[Record]:
    """The prompts of all sessions, once all completions were accepted."""
    mail = gateway.bus.read(subjects.SESSIONS, "fairlead.session.*.in.prompt.>")
    found = [record async for record in mail]
    return found if len(found) >= COMPLETIONS else []
