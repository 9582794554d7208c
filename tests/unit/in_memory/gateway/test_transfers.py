"""Admins give sessions and jobs to other users; nobody else does."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_common.protocol import subjects
from tests.support.fake_bus import FakeBus
from tests.support.gateway_in_memory import TOKEN, GatewayInMemory, gateway_in_memory


@pytest.fixture
async def world(bus: FakeBus, tmp_path: Path) -> AsyncIterator[GatewayInMemory]:
    async with gateway_in_memory(bus, tmp_path) as made:
        await made.user("ann", "operator")
        await made.user("eve", "admin")
        await made.session("a", "ann")
        yield made


@pytest.mark.parametrize(
    ("asker", "owner", "status"),
    [("ann", "eve", 403), ("eve", "eve", 202), ("", "ann", 202), ("", "admin", 202), ("", "bob", 409)],
)
async def test_a_session_goes_over_by_an_admin_to_a_user_that_there_is(
    world: GatewayInMemory, asker: str, owner: str, status: int
) -> None:
    token = world.token(asker, "read", "write", "admin") if asker else TOKEN
    answer = await world.ask(token, "PATCH", "/api/sessions/a", {"owner": owner})
    assert answer.status_code == status, answer.text
    mail = await world.bus.last(subjects.SESSIONS, subjects.session_mail("a"))
    stored = msgspec.json.decode(mail.data) if mail is not None else {}
    assert stored.get("owner") == (("" if owner == "admin" else owner) if status == 202 else "ann")


async def test_an_admin_with_a_token_that_only_writes_gives_nothing_away(world: GatewayInMemory) -> None:
    token = world.token("eve", "read", "write")
    answer = await world.ask(token, "PATCH", "/api/sessions/a", {"owner": "eve"})
    assert answer.status_code == 403
