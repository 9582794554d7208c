"""What is sent compressed, and what is not."""

import json

from fairlead_common.bus import Bus
from fairlead_common.bus.objects import Objects
from tests.integration.gateway_fixture import RunningGateway, sse

GZIP = {"Accept-Encoding": "gzip"}


async def test_a_list_is_compressed_for_those_who_take_that(gateway: RunningGateway) -> None:
    for number in range(60):
        await gateway.session(title=f"Session number {number}")
    async with gateway.http.stream("GET", "/api/sessions?limit=100", headers=GZIP) as response:
        packed = b"".join([chunk async for chunk in response.aiter_raw()])
    plain = await gateway.http.get("/api/sessions?limit=100", headers={"Accept-Encoding": "identity"})
    assert response.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in response.headers["vary"]
    assert "content-security-policy" in response.headers
    assert "content-encoding" not in plain.headers
    assert len(json.loads(plain.content)["sessions"]) == 60
    assert len(packed) * 4 < len(plain.content)


async def test_events_are_neither_compressed_nor_held_back(gateway: RunningGateway) -> None:
    session = await gateway.session()
    path = f"/api/sessions/{session}/events?after=0"
    async with gateway.http.stream("GET", path, headers=GZIP, timeout=20) as response:
        assert "content-encoding" not in response.headers
        async for event in sse(response):  # the connection stays open: what was held back would never come
            if event["type"] == "caught_up":
                break


async def test_a_download_is_sent_as_it_is(gateway: RunningGateway, bus: Bus) -> None:
    data = b"the same line\n" * 500
    name = await Objects(bus).put(data)
    response = await gateway.http.get(f"/api/objects/{name}", headers=GZIP)
    assert "content-encoding" not in response.headers
    assert response.content == data
