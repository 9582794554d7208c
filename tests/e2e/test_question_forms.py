"""The form of an MCP server in the page: filled in wrongly and rightly, declined, on a phone, after kills."""

import json
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.e2e import test_web
from tests.e2e.tab import UNREACHABLE, Tab
from tests.e2e.test_accessible import AXE, violations
from tests.e2e.test_web import NewTab
from tests.support.fairlead_up import FairleadUp
from tests.support.mcp_servers import ASKING_SERVER
from tests.support.scripted_model import ModelProcess
from tests.support.waiting import eventually

pytestmark = test_web.pytestmark

model, browser, new_tab, tab = test_web.model, test_web.browser, test_web.new_tab, test_web.tab


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, model: ModelProcess) -> Iterator[FairleadUp]:
    folder = tmp_path_factory.mktemp("forms")
    server = folder / "asking.py"
    server.write_text(ASKING_SERVER)
    shop = {"command": sys.executable, "args": [str(server)], "env": {"JOURNAL": str(folder / "journal")}}
    environ = {
        "FAIRLEAD_MODEL": "openai/scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "scripted",
    }
    with FairleadUp(folder / "home", sets=["agents.main.mode=allow-all"], environ=environ) as running:
        assert running.cli("config", "set", "tools.mcp.shop", json.dumps(shop)).returncode == 0
        eventually(lambda: "6 tools" in running.cli("mcp", "ls").stdout, "the server offers its tools")
        yield running


def asked(up: FairleadUp, tab: Tab, op: str, item: str) -> str:
    """The session in whose page the server asks for an order."""
    session = up.session()
    up.prompt(session, f'op={op} steps=1 tool=mcp__shop__order args={{"item":"{item}"}}')
    up.wait_approval(session)
    tab.go(f"/s/{session}")
    expect(tab.card).to_contain_text("The MCP server shop asks")
    expect(tab.card).to_contain_text(f"Which {item}?")
    return session


def result(up: FairleadUp, session: str) -> str:
    up.wait_idle(session)
    messages = (entry.get("message", {}) for entry in up.entries(session))
    return json.dumps([each for each in messages if each.get("role") == "tool_result"])


def test_a_form_is_checked_and_its_values_reach_the_server(up: FairleadUp, tab: Tab) -> None:
    session = asked(up, tab, "F1", "tea")
    tab.expect_trouble("400")
    card = tab.card
    if AXE.exists():
        assert violations(tab) == []
    tab.shoot("form")
    card.get_by_role("button", name="Send").click()  # what is required is empty: the browser says so
    expect(card).to_have_count(1)
    card.get_by_label("Size").select_option("large")
    card.get_by_label("count").fill("12")
    card.get_by_role("button", name="Send").click()
    expect(tab.page.get_by_text("answer.count: at most 9, got 12").first).to_be_visible()
    card.get_by_label("count").fill("2")
    card.get_by_label("gift").check()
    card.get_by_role("button", name="Send").click()
    expect(card).to_have_count(0)
    assert "2 large tea, gift True" in result(up, session)


def test_a_form_is_declined(up: FairleadUp, tab: Tab) -> None:
    session = asked(up, tab, "F2", "milk")
    tab.card.get_by_role("button", name="Decline").click()
    expect(tab.card).to_have_count(0)
    assert "no milk: decline" in result(up, session)


def test_a_form_is_sent_from_a_phone_after_gateway_and_agent_were_killed(
    up: FairleadUp, new_tab: NewTab
) -> None:
    tab = new_tab(viewport={"width": 390, "height": 780}, has_touch=True)
    for trouble in (UNREACHABLE, "502", "503"):
        tab.expect_trouble(trouble)
    session = asked(up, tab, "F3", "bread")
    tab.card.get_by_label("Size").select_option("small")
    tab.card.get_by_label("count").fill("3")
    tab.shoot("form-phone")
    for service in ("gateway", "agent"):
        up.kill(service)
        up.wait_restarted(service)
    up.wait_ready()
    expect(tab.card.get_by_label("count")).to_have_value("3")
    tab.card.get_by_role("button", name="Send").click()
    expect(tab.card).to_have_count(0)
    assert "3 small bread, gift False" in result(up, session)
