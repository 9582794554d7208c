"""Prompts of an MCP server in the page: found with a slash, filled in with suggestions, and marked as its."""

import json
import re
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.e2e import test_web
from tests.e2e.tab import Tab
from tests.e2e.test_accessible import AXE, violations
from tests.e2e.test_web import NewTab
from tests.support.fairlead_up import FairleadUp
from tests.support.mcp_servers import PROMPT_SERVER
from tests.support.scripted_model import ModelProcess
from tests.support.waiting import eventually

pytestmark = test_web.pytestmark

model, browser, new_tab, tab = test_web.model, test_web.browser, test_web.new_tab, test_web.tab


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, model: ModelProcess) -> Iterator[FairleadUp]:
    folder = tmp_path_factory.mktemp("prompts")
    program = folder / "desk.py"
    program.write_text(PROMPT_SERVER)
    desk = {"command": sys.executable, "args": [str(program)], "env": {"JOURNAL": str(folder / "journal")}}
    environ = {
        "FAIRLEAD_MODEL": "openai/scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "scripted",
    }
    sets = ["agents.main.mode=allow-all", f"tools.mcp.desk={json.dumps(desk)}"]
    with FairleadUp(folder / "home", sets=sets, environ=environ) as running:
        eventually(lambda: running.api("GET", "/api/mcp/prompts")["prompts"], "they are listed", within_s=60)
        yield running


def menu_of(page: Page, text: str) -> list[str]:
    """The names that a text in the composer is offered, once there are any."""
    page.get_by_label("Message", exact=True).fill(text)
    options = page.get_by_role("listbox", name="Commands and prompts").get_by_role("option")
    expect(options.first).to_be_visible()
    return [text.split(" ")[0].strip() for text in options.all_text_contents()]


def test_a_prompt_is_found_by_keys_filled_in_with_suggestions_and_sent(up: FairleadUp, tab: Tab) -> None:
    page, session = tab.page, up.session()
    tab.go(f"/s/{session}")
    expect(tab.composer).to_be_visible()
    tab.composer.fill("/")
    expect(page.get_by_role("option", name="/desk:review")).to_be_visible()
    assert menu_of(page, "/")[:2] == ["/new", "/compact"]
    page.emulate_media(color_scheme="light")
    tab.shoot("menu")
    if AXE.exists():
        assert violations(tab) == []
    tab.composer.fill("/re")
    expect(page.get_by_role("option")).to_have_count(1)
    tab.composer.press("Escape")
    expect(page.get_by_role("option")).to_have_count(0)
    tab.composer.fill("/rev")
    tab.composer.press("Enter")
    form = page.get_by_role("dialog", name="/desk:review")
    expect(form).to_contain_text("Asks for a review of a pull request.")
    pull_request = form.get_by_label("pr *")
    form.get_by_role("button", name="Send").click()  # what is required is empty: the browser says so
    expect(form).to_be_visible()
    pull_request.fill("1")
    suggested = form.locator("datalist").first.locator("option")
    expect(suggested).to_have_count(2)
    assert [each.get_attribute("value") for each in suggested.all()] == ["12", "17"]
    pull_request.fill("12")
    if AXE.exists():
        assert violations(tab) == []
    tab.shoot("form")
    page.emulate_media(color_scheme="dark")
    tab.shoot("form-dark")
    form.get_by_role("button", name="Send").click()
    expect(form).to_have_count(0)
    expect(tab.composer).to_have_value("")
    said = tab.said.first
    expect(said).to_contain_text("Prompt review of the MCP server desk")
    expect(said).to_contain_text("untrusted")
    expect(said).to_contain_text("Review 12, short.")
    expect(said.get_by_role("button", name="Edit and send again")).to_have_count(0)
    tab.shoot("said-dark")


def test_a_new_chat_begins_with_a_prompt_on_a_phone_and_a_refusal_is_told(
    up: FairleadUp, new_tab: NewTab
) -> None:
    tab = new_tab(viewport={"width": 390, "height": 780}, has_touch=True)
    tab.expect_trouble("400")
    page = tab.page
    tab.go("/")
    before = {each["id"] for each in up.api("GET", "/api/sessions")["sessions"]}
    assert "/new" not in menu_of(page, "/")
    tab.shoot("menu-phone")
    page.get_by_role("option", name="/desk:endless").click()
    form = page.get_by_role("dialog", name="/desk:endless")
    form.get_by_role("button", name="Send").click()
    expect(form.get_by_role("alert")).to_contain_text("the prompt has 500,002 bytes, at most 400,000")
    form.get_by_role("button", name="Cancel").click()
    eventually(
        lambda: {each["id"] for each in up.api("GET", "/api/sessions")["sessions"]} == before,
        "no empty session is left",
    )
    page.get_by_role("option", name="/desk:review").click()
    form = page.get_by_role("dialog", name="/desk:review")
    form.get_by_label("pr *").fill("17")
    tab.shoot("form-phone")
    form.get_by_role("button", name="Send").click()
    page.wait_for_url(re.compile(r"/s/"))
    expect(tab.said.first).to_contain_text("Review 17, short.")


def test_a_message_that_begins_with_a_path_is_offered_nothing(tab: Tab) -> None:
    tab.go("/")
    tab.composer.fill("/etc/hosts is wrong")
    expect(tab.page.get_by_role("listbox")).to_have_count(0)
