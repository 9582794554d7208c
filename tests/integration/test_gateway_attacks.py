"""Requests that try to be read in two ways, to cost more than they should, or to stay for ever."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects
from tests.integration.gateway_fixture import TOKEN, RunningGateway, running_gateway
from tests.integration.gateway_logins import LISTED
from tests.support.nats_server import NatsServer

AUTHORIZED = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
HIDDEN = f"GET /api/me HTTP/1.1\r\n{AUTHORIZED}\r\n"
MESSAGE = b'{"role": "user", "content": "a"}'
GET = f"GET /healthz HTTP/1.1\r\n{AUTHORIZED}\r\n".encode()


@pytest.fixture
async def gateway(bus: Bus, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    async with running_gateway(nats_server.url, tmp_path, LISTED) as running:
        yield running


async def answers(port: int, request: bytes, within_s: float = 3.0) -> tuple[list[int], bool]:
    """The statuses of all answers to what is written, and whether the gateway closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    got, closed = b"", False
    try:
        async with asyncio.timeout(within_s):
            while piece := await reader.read(65_536):
                got += piece
            closed = True
    except ConnectionError:
        closed = True
    except TimeoutError:
        pass
    writer.transport.abort()
    return [int(part[:3]) for part in got.split(b"HTTP/1.1 ")[1:]], closed


async def test_a_whole_url_must_name_the_host_that_the_header_names(gateway: RunningGateway) -> None:
    for target, host, status in (
        ("http://localhost/api/me", "localhost", 200),
        ("http://LOCALHOST:8420/api/me", "localhost:8420", 200),
        ("http://evil.com/api/me", "localhost", 400),
        ("http://localhost/api/me", "fairlead.example.net", 400),
        ("http://localhost@evil.com/api/me", "localhost", 400),
        ("http://evil.com/api/me", "evil.com", 421),
        ("ftp://localhost/api/me", "localhost", 400),
        ("localhost:8420", "localhost", 400),
    ):
        head = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        found, _ = await answers(gateway.port, head.encode(), 0.5)
        assert found == [status], (target, host, found)
    connect = f"CONNECT evil.com:443 HTTP/1.1\r\n{AUTHORIZED}\r\n".encode()
    found, _ = await answers(gateway.port, connect, 0.5)
    assert found in ([400], [])


SMUGGLED = [
    f"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\nContent-Length: {len(HIDDEN)}\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: identity, chunked, x\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Content-Length : 0\r\n\r\n{HIDDEN}",
    f"Content-Length: 0,5\r\n\r\n{HIDDEN}",
    f"Content-Length: -0\r\n\r\n{HIDDEN}",
    f"Content-Length: 0x0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\n\r\n-1\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\n\r\n0;\n\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\n\r\n0\n\n{HIDDEN}",
    f"X: a\n\n{HIDDEN}",
    f"X: a\r\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n{HIDDEN}',
    f"Transfer-Encoding: \xa0chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    f"Content-Length: 0\r\n 5\r\n\r\n{HIDDEN}",
    f"Content-Length: 0\r\nContent-Length: {len(HIDDEN)}\r\n\r\n{HIDDEN}",
    f"Content-Length: \xb2\r\n\r\n{HIDDEN}",
    f"Content-Length: 1_0\r\n\r\n{HIDDEN}",
    f"Content-Length\0: 0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\n\r\n0_0\r\n\r\n{HIDDEN}",
    f"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 9\r\n\r\n{HIDDEN}",
]


async def test_nothing_behind_a_request_that_can_be_read_in_two_ways_is_a_request(
    gateway: RunningGateway,
) -> None:
    for rest in SMUGGLED:
        head = f"POST /api/nothing HTTP/1.1\r\n{AUTHORIZED}{rest}"
        found, closed = await answers(gateway.port, head.encode("latin-1"))
        assert found in ([400], []), (rest, found)
        assert closed, rest
    twin = f"POST /api/nothing HTTP/1.1\r\n{AUTHORIZED}Content-Length: 0\r\n\r\n{HIDDEN}"
    assert await answers(gateway.port, twin.encode(), 0.5) == ([404, 200], False)


async def test_a_field_behind_the_body_gives_no_rights(gateway: RunningGateway) -> None:
    head = "POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    for field in (f"Authorization: Bearer {TOKEN}", "Host: evil.com"):
        late = f"Trailer: {field.partition(':')[0]}\r\n\r\n2\r\n{{}}\r\n0\r\n{field}\r\n\r\n"
        assert (await answers(gateway.port, (head + late).encode(), 0.5))[0] == [401]


async def test_two_fields_of_one_name_are_refused_on_every_body_and_nothing_is_done(
    gateway: RunningGateway, bus: Bus
) -> None:
    session = await gateway.session()
    before = await bus.last(subjects.SESSIONS, "fairlead.session.>")
    for method, path, body in (
        ("POST", "/api/sessions", b'{"agent": "main", "title": "a", "title": "b"}'),
        ("PATCH", f"/api/sessions/{session}", b'{"mode": "ask", "mode": "allow-all"}'),
        ("POST", f"/api/sessions/{session}/prompt", b'{"text": "harmless", "text": "other"}'),
        ("POST", f"/api/sessions/{session}/abort", b'{"reason": "a", "re\\u0061son": "b"}'),
        ("POST", "/api/cron/preview", b'{"job": {"name": "a", "payload": {"kind": "a", "kind": "b"}}}'),
        ("POST", "/api/tokens", b'{"name": "a", "scopes": ["read"], "scopes": ["admin"]}'),
        ("POST", "/v1/chat/completions", b'{"model": "main", "messages": [%s], "n": 1, "n": 2}' % MESSAGE),
        (
            "POST",
            "/v1/chat/completions",
            b'{"model": "main", "messages": [{"content": "b", %s]}' % MESSAGE[1:],
        ),
        ("POST", "/v1/responses", b'{"model": "main", "input": "a", "\\u0069nput": "b"}'),
        ("POST", "/v1/conversations", b'{"metadata": {"a": "b", "a": "c"}}'),
        ("POST", "/mcp", b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "id": 2}'),
    ):
        answer = await gateway.http.request(method, path, content=body)
        assert answer.status_code == 400, (path, answer.text)
        assert "more than once" in answer.text, (path, answer.text)
    after = await bus.last(subjects.SESSIONS, "fairlead.session.>")
    assert after is not None
    assert before is not None
    assert after.seq == before.seq


async def test_odd_requests_cost_no_more_than_others(gateway: RunningGateway) -> None:
    session = await gateway.session()
    name = await gateway.gateway.objects.put(b"x" * 100_000)
    part = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\nb\r\n"
    prompt = f"/api/sessions/{session}/prompt"
    nested = b"[" * 3_000_000
    for method, path, headers, body, status in (
        ("GET", f"/api/objects/{name}", {"Range": "bytes=" + "0-," * 5000 + "0-"}, b"", 200),
        ("POST", prompt, {"Content-Type": "multipart/form-data; boundary=x"}, part * 10_000, 400),
        ("POST", prompt, {"Content-Type": "multipart/form-data; boundary=" + "x" * 9000}, part, 400),
        ("POST", prompt, {"Content-Encoding": "br"}, b"\x00" * 1000, 415),
        ("POST", prompt, {"Content-Encoding": "deflate"}, b"\x00" * 1000, 415),
        ("POST", prompt, {}, b'{"' + b"k" * 3_000_000 + b'": 1}', 400),
        ("POST", prompt, {}, b'{"text": ' + nested, 400),
        ("POST", prompt, {}, b'{"text": "x", "key": 1e999}', 400),
        ("POST", prompt, {}, b'{"text": ' + b"9" * 1_000_000 + b"}", 400),
        ("POST", prompt, {}, b'{"__proto__": {}, "text": "x"}', 400),
        ("GET", "/api/sessions?" + "&".join(f"a{n}=1" for n in range(2000)), {}, b"", 400),
        ("GET", "/api/sessions?limit=" + "9" * 10_000, {}, b"", 400),
    ):
        began = time.perf_counter()
        answer = await gateway.http.request(method, path, headers=headers, content=body)
        took_s = time.perf_counter() - began
        assert answer.status_code == status, (path[:80], answer.text[:300])
        assert took_s < 2, (path[:80], took_s)
        assert len(answer.content) < 1500 or status == 200, "what was sent is not sent back"
    download = await gateway.http.get(f"/api/objects/{name}", headers={"Range": "bytes=0-,0-"})
    assert len(download.content) == 100_000
    assert "accept-ranges" not in download.headers


async def test_idle_connections_are_bounded_and_those_in_use_stay(gateway: RunningGateway) -> None:
    config = gateway.server_config
    session = await gateway.session()
    async with gateway.http.stream("GET", f"/api/sessions/{session}/events") as viewer:
        config.max_connections = most = 50
        opened = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(10)]
        for _ in range(200):
            reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
            writer.write(GET)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            opened.append((reader, writer))
        assert len(config.idle) <= most
        reader, writer = opened[10]  # an idle one; its first answer is read whole
        async with asyncio.timeout(5):
            assert b"HTTP/1.1" not in await reader.read()
        assert (await gateway.call("GET", "/api/me"))[0] == 200
        assert not viewer.is_closed
        for _, writer in opened:
            writer.transport.abort()


async def test_without_an_idle_one_a_further_connection_is_told_to_come_later(
    gateway: RunningGateway,
) -> None:
    gateway.server_config.max_connections = 5
    silent = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(5)]
    found, closed = await answers(gateway.port, GET)
    assert (found, closed) == ([503], True)
    for _, writer in silent:
        writer.transport.abort()
    for _ in range(100):
        found, _ = await answers(gateway.port, GET, 0.2)
        if found == [200]:
            return
    raise AssertionError("the gateway answers again once they are gone")


async def test_nothing_keeps_a_connection_for_ever(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_gateway.http.protocols.HEADERS_WITHIN_S", 0.3)
    for rest in (b"\r\n", b"\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(GET)
        await reader.readuntil(b"}")
        writer.write(rest)  # no request begins with it, and it ends the time that an idle one has
        async with asyncio.timeout(5):
            assert await reader.read() == b""
    early = b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(early)
    assert b" 401 " in await reader.readuntil(b"\r\n")
    began = time.monotonic()
    try:
        while time.monotonic() - began < 5:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)
    except ConnectionError:
        pass
    assert time.monotonic() - began < 3
