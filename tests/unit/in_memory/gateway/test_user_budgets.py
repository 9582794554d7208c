"""Admins give users budgets, and alone raise them."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_common.protocol.projections import ApprovalSummary, approval_key
from fairlead_common.protocol.users import Sharing
from tests.support.fake_bus import FakeBus
from tests.support.gateway_in_memory import TOKEN, GatewayInMemory, gateway_in_memory


@pytest.fixture
async def world(bus: FakeBus, tmp_path: Path) -> AsyncIterator[GatewayInMemory]:
    async with gateway_in_memory(bus, tmp_path) as made:
        for name in ("ann", "eve"):
            await made.user(name, "approver")
        await made.user("root2", "admin")
        yield made


async def test_admins_set_and_take_away_the_budgets_of_users(world: GatewayInMemory) -> None:
    async def change(**fields: float) -> dict[str, float]:
        answer = await world.ask(TOKEN, "PATCH", "/api/users/ann", fields)
        assert answer.status_code == 200, answer.text
        found: dict[str, float] = answer.json()["budget"]
        return found

    assert await change(usd_per_day=5) == {"usd_per_day": 5}
    assert await change(usd_per_month=20.5) == {"usd_per_day": 5, "usd_per_month": 20.5}
    assert await change(usd_per_day=0) == {"usd_per_month": 20.5}
    listed = (await world.ask(TOKEN, "GET", "/api/users")).json()["users"]
    assert {each["name"]: each["budget"] for each in listed} == {
        "admin": {},
        "ann": {"usd_per_month": 20.5},
        "eve": {},
        "root2": {},
    }
    for wrong in (-1, 1e9, "much"):
        refused = await world.ask(TOKEN, "PATCH", "/api/users/ann", {"usd_per_day": wrong})
        assert (refused.status_code, refused.json()["error"]["field"]) == (400, "usd_per_day")
    own = await world.ask(world.token("ann", "approve"), "PATCH", "/api/users/ann", {"usd_per_day": 1000})
    assert own.status_code == 403


@pytest.mark.parametrize(
    ("whose", "decides", "decision", "status"),
    [
        ("ann", "ann", "once", 403),
        ("ann", "eve", "once", 403),
        ("ann", "eve", "deny", 202),
        ("ann", "root2", "once", 202),
        ("root2", "root2", "once", 403),
        ("root2", "admin", "once", 202),
    ],
)
async def test_the_budget_of_a_user_is_raised_by_another_one_who_is_an_admin(
    world: GatewayInMemory, whose: str, decides: str, decision: str, status: int
) -> None:
    await world.session("shared", "ann", Sharing(access="write"))
    asked = ApprovalSummary(
        id="b1", session="shared", kind="budget", tool="budget", arguments={"scope": f"user-{whose}"}
    )
    await world.put(approval_key("b1"), msgspec.json.encode(asked))
    await world.until(lambda: world.gateway.index.approval("b1") is not None)
    token = TOKEN if decides == "admin" else world.token(decides, "approve", "admin")
    answer = await world.ask(token, "POST", "/api/approvals/b1", {"decision": decision})
    assert answer.status_code == status, answer.text
    if status == 403:
        assert f"raising the budget of the user {whose} needs an admin, and not {whose}" in answer.text
