"""What is revoked ends: open event streams and long requests, at every gateway, within 5 s."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_common.bus import Bus
from tests.integration.gateway_fixture import FakeAgent, RunningGateway, running_gateway
from tests.support.nats_server import NatsServer

WITHIN_S = 5.0


@pytest.fixture
async def gateways(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    async with (
        running_gateway(nats_server.url, tmp_path) as first,
        running_gateway(nats_server.url, tmp_path) as second,
    ):
        yield first, second


async def _until_it_ends(
    url: str, token: str, begun: asyncio.Event, method: str, path: str, body: Any
) -> int:
    """Follow an answer until it ends; its status."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as http:
        if body is not None:
            begun.set()
        try:
            async with http.stream(method, path, json=body) as answer:
                begun.set()
                async for _ in answer.aiter_raw():
                    pass
                return answer.status_code
        except httpx.TransportError:  # it was cut off
            return 0


Revocation = Callable[[RunningGateway, dict[str, Any]], Awaitable[tuple[int, Any]]]
REVOCATIONS: dict[str, Revocation] = {
    "token": lambda gateway, token: gateway.call("DELETE", f"/api/tokens/{token['id']}"),
    "disabled": lambda gateway, _: gateway.call("PATCH", "/api/users/olaf", {"disabled": True}),
}


async def test_open_streams_and_long_requests_end_at_all_gateways(
    gateways: tuple[RunningGateway, RunningGateway], bus: Bus
) -> None:
    first, second = gateways
    for number, (name, revoke) in enumerate(REVOCATIONS.items()):
        status, _ = await first.call(
            "POST", "/api/users", {"name": "olaf", "role": "operator", "adopt": True}
        )
        assert status == 201
        wanted = {"scopes": ["read", "write"], "user": "olaf"}
        status, token = await first.call("POST", "/api/tokens", wanted)
        assert status == 201
        headers = {"Authorization": f"Bearer {token['token']}"}
        session = f"of-olaf-{number}"
        made = await first.http.post("/api/sessions", json={"id": session}, headers=headers)
        assert made.status_code == 201
        await FakeAgent(bus, session).list_as(owner="olaf")
        chat = {"model": "main", "messages": [{"role": "user", "content": "hello"}]}
        opened: list[tuple[asyncio.Event, asyncio.Task[int]]] = []
        async with asyncio.TaskGroup() as tasks:
            for gateway in gateways:
                for method, path, body in (
                    ("GET", f"/api/sessions/{session}/events", None),
                    ("GET", "/api/news", None),
                    ("POST", "/v1/chat/completions", chat),  # no agent answers it
                    ("POST", "/v1/chat/completions", {**chat, "stream": True}),
                ):
                    begun = asyncio.Event()
                    following = _until_it_ends(gateway.url, token["token"], begun, method, path, body)
                    opened.append((begun, tasks.create_task(following)))
            async with asyncio.timeout(20):
                for begun, _ in opened:
                    await begun.wait()
                while len(first.gateway.running) < 4 or len(second.gateway.running) < 4:
                    await asyncio.sleep(0.02)
            began = time.monotonic()
            status, _ = await revoke(first, token)
            assert status in (200, 204)
        lasted_s = time.monotonic() - began
        assert lasted_s < WITHIN_S, name
        again = await second.http.get("/api/sessions", headers=headers)
        assert again.status_code == 401
        await first.call("DELETE", "/api/users/olaf")


async def test_a_new_password_ends_streams_of_other_logins_at_another_gateway(
    gateways: tuple[RunningGateway, RunningGateway],
) -> None:
    first, second = gateways
    await first.call("POST", "/api/users", {"name": "pia", "role": "operator"})
    status, _ = await first.call("PUT", "/api/users/pia/password", {"password": "four grey herons"})
    assert status == 204
    async with httpx.AsyncClient(base_url=second.url, timeout=60) as http:
        body = {"name": "pia", "password": "four grey herons"}
        made = await http.post("/api/login", json=body)
        assert made.status_code == 204
        page = {"X-Fairlead-Page": made.headers["x-fairlead-page"], "Sec-Fetch-Site": "same-origin"}
        async with http.stream("GET", "/api/news", headers=page) as answer:
            assert answer.status_code == 200
            status, _ = await first.call("PUT", "/api/users/pia/password", {"password": "five grey herons"})
            assert status == 204
            began = time.monotonic()
            async for _ in answer.aiter_raw():
                pass
        assert time.monotonic() - began < WITHIN_S
        assert (await http.get("/api/me", headers=page)).status_code == 401


async def test_a_viewer_sees_nothing_more_of_a_session_that_is_no_longer_shared(
    gateways: tuple[RunningGateway, RunningGateway], bus: Bus
) -> None:
    first, second = gateways
    await first.call("POST", "/api/users", {"name": "vic", "role": "viewer"})
    _, token = await first.call("POST", "/api/tokens", {"scopes": ["read"], "user": "vic"})
    session = await first.session(id="shared-once")
    agent = FakeAgent(bus, session)
    await agent.list_as(shared={"access": "view"})
    for gateway in gateways:
        async with asyncio.timeout(10):
            while gateway.gateway.index.access(session).shared.access != "view":
                await asyncio.sleep(0.02)
    begun = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        path = f"/api/sessions/{session}/events"
        tasks.create_task(_until_it_ends(second.url, token["token"], begun, "GET", path, None))
        await asyncio.wait_for(begun.wait(), 10)
        began = time.monotonic()
        await agent.list_as()
    assert time.monotonic() - began < WITHIN_S
