"""From where requests are taken that are not encrypted: none that brings a token over the internet."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from fairlead_common.protocol.ids import new_id
from fairlead_gateway.app import create_app
from tests.support.fake_bus import FakeBus
from tests.support.gateway_in_memory import TOKEN, GatewayInMemory, gateway_in_memory

LOCAL = ["127.0.0.1", "::1", "", "::ffff:127.0.0.1"]
TAILNET = ["100.64.0.1", "100.127.255.254", "fd7a:115c:a1e0::5", "::ffff:100.101.102.103"]
PRIVATE = [
    "10.1.1.1",
    "172.31.0.1",
    "192.168.1.9",
    "169.254.0.4",
    "fd12::1",
    "fe80::1%eth0",
    "::ffff:10.0.0.1",
]
OUTSIDE = [
    "8.8.8.8",
    "100.63.255.255",
    "100.128.0.1",
    "172.32.0.1",
    "192.0.2.1",
    "2001:4860::1",
    "::ffff:8.8.8.8",
]


@pytest.fixture
async def world(bus: FakeBus, tmp_path: Path) -> AsyncIterator[GatewayInMemory]:
    async with gateway_in_memory(bus, tmp_path) as made:
        yield made


def choose(world: GatewayInMemory, **settings: object) -> None:
    config = world.gateway.config.current
    gateway = msgspec.structs.replace(config.gateway, hosts=["box.example"], **settings)
    world.gateway.config.current = msgspec.structs.replace(config, gateway=gateway)


async def ask(world: GatewayInMemory, peer: str, path: str = "/api/me", **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(create_app(world.gateway), client=(peer, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://box.example") as http:
        return await http.get(path, headers={"Authorization": f"Bearer {TOKEN}", **headers})


@pytest.mark.parametrize(
    ("setting", "taken", "refused"),
    [
        ("private", [*LOCAL, *TAILNET, *PRIVATE], OUTSIDE),
        ("tailnet", [*LOCAL, *TAILNET], [*PRIVATE, *OUTSIDE]),
        ("any", [*LOCAL, *TAILNET, *PRIVATE, *OUTSIDE], []),
    ],
)
async def test_the_setting_says_from_where_plain_http_is_taken(
    world: GatewayInMemory, setting: str, taken: list[str], refused: list[str]
) -> None:
    choose(world, plain_http=setting)
    assert {peer: (await ask(world, peer)).status_code for peer in taken} == dict.fromkeys(taken, 200)
    for peer in refused:
        answer = await ask(world, peer)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_encrypted"), peer
        assert f"gateway.plain_http is {setting}" in answer.text


async def test_a_token_from_the_internet_is_refused_by_default_wherever_it_is_sent(
    world: GatewayInMemory,
) -> None:
    choose(world)
    for path in ("/", "/api/login", "/login?code=x", "/v1/models", "/metrics", "/mcp", "/nothing"):
        assert (await ask(world, "8.8.8.8", path)).status_code == 403, path
    assert (await ask(world, "8.8.8.8", "/healthz")).status_code == 200


async def test_a_proxy_of_this_machine_may_take_them_and_another_machine_cannot_say_it_is_one(
    world: GatewayInMemory,
) -> None:
    choose(world, plain_http="tailnet")
    https = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "8.8.8.8"}
    assert (await ask(world, "127.0.0.1", **https)).status_code == 200
    assert (await ask(world, "8.8.8.8", **https, **{"X-Real-IP": "127.0.0.1"})).status_code == 403


async def test_a_socket_is_refused_before_a_token_is_sent(world: GatewayInMemory) -> None:
    choose(world)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket", "scheme": "ws", "path": "/ws", "raw_path": b"/ws", "query_string": b"",
        "headers": [(b"host", b"box.example")], "client": ("8.8.8.8", 1), "server": ("box.example", 80),
        "subprotocols": [], "extensions": {"websocket.http.response": {}}, "state": {"id": new_id()},
        "asgi": {"version": "3.0"},
    }  # fmt: skip
    await create_app(world.gateway)(scope, receive, send)
    assert sent[0]["type"] == "websocket.http.response.start"
    assert sent[0]["status"] == 403
