"""Budgets in the page: what is left, and who may raise them."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e import test_web
from tests.e2e.tab import Tab
from tests.e2e.test_web import NewTab
from tests.support.fairlead_up import FairleadUp
from tests.support.scripted_model import ModelProcess

pytestmark = test_web.pytestmark
PHONE = {**test_web.PHONE, "color_scheme": "dark"}

model, browser, new_tab = test_web.model, test_web.browser, test_web.new_tab

PRICES = {"input_usd_per_mtok": 100, "output_usd_per_mtok": 100, "max_output_tokens": 2000}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, model: ModelProcess) -> Iterator[FairleadUp]:
    environ = {
        "FAIRLEAD_MODEL": "openai/scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "scripted",
    }
    sets = (f"models.entries={json.dumps({'openai/scripted': PRICES})}", "agents.main.mode=allow-all")
    with FairleadUp(tmp_path_factory.mktemp("budgets") / "home", sets=sets, environ=environ) as running:
        yield running


@pytest.fixture(scope="module")
def token(up: FairleadUp) -> str:
    """A token of the approver anna."""
    up.api("POST", "/api/users", {"name": "anna", "role": "approver"})
    scopes = ["read", "write", "approve"]
    made: str = up.api("POST", "/api/tokens", {"user": "anna", "scopes": scopes})["token"]
    return made


@pytest.fixture
def as_anna(up: FairleadUp, browser: Browser, token: str, request: pytest.FixtureRequest) -> Iterator[NewTab]:
    """Makes tabs that anna is logged in to."""
    tabs: list[Tab] = []

    def make(**options: object) -> Tab:
        name = f"{request.node.name}-{len(tabs) + 1}"
        tabs.append(Tab(browser, up.base_url, name, token=token, **options))
        return tabs[-1]

    yield make
    for tab in tabs:
        tab.shoot()
        tab.close()
    for tab in tabs:
        tab.check()


def test_more_money_is_offered_only_to_who_may_allow_it(
    up: FairleadUp, token: str, as_anna: NewTab, new_tab: NewTab
) -> None:
    anna = as_anna()
    up.api("PATCH", "/api/users/anna", {"usd_per_day": 0.05})
    status, _ = up.call(
        "POST", "/api/sessions", {"id": "annas"}, headers={"Authorization": f"Bearer {token}"}
    )
    assert status == 201
    session = "annas"
    anna.go(f"/s/{session}")
    anna.composer.fill("op=B1 say 20 words")
    anna.composer.press("Enter")
    refusal = "raising the budget of the user anna needs an admin, and not anna"
    expect(anna.card).to_contain_text(refusal)
    expect(anna.card.get_by_role("button", name="Deny")).to_be_enabled()
    expect(anna.card.get_by_role("button", name="Go on")).to_have_count(0)
    expect(anna.page.get_by_text("Esc, then d denies")).to_be_visible()
    expect(anna.card).not_to_contain_text("micro_usd")
    anna.shoot("session")
    anna.page.keyboard.press("a")  # no key allows it either
    expect(anna.card.get_by_text("Answer sent")).to_have_count(0)

    phone = as_anna(**PHONE)
    phone.go("/approvals")
    expect(phone.card).to_contain_text(refusal)
    expect(phone.card.get_by_role("button", name="Go on")).to_have_count(0)

    admin = new_tab()
    admin.go("/approvals")
    expect(admin.card).to_contain_text(re.compile(r"Go on with \$"))
    expect(admin.card).not_to_contain_text("You cannot allow more")
    admin.card.get_by_role("button", name="Go on").click()
    expect(anna.replies.first).to_contain_text("done B1")
    expect(anna.card).to_have_count(0)

    for tab, name in ((anna, "left"), (phone, "left-phone")):
        tab.go("/usage")
        row = tab.page.get_by_role("region", name="Budgets").get_by_role("row", name=re.compile("^anna, day"))
        expect(row).to_contain_text("$0.05 + $")
        tab.shoot(name)
