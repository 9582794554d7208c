"""Summaries in place of earlier messages: asked for, automatic, taken back; what a person sees of each."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e import test_web
from tests.e2e.tab import Tab
from tests.e2e.test_web import NewTab
from tests.support.fairlead_up import FairleadUp
from tests.support.scripted_model import ModelProcess

pytestmark = test_web.pytestmark
PHONE = test_web.PHONE
has_sideways_scrolling = test_web.has_sideways_scrolling

model, browser, new_tab, tab = test_web.model, test_web.browser, test_web.new_tab, test_web.tab


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, model: ModelProcess) -> Iterator[FairleadUp]:
    """Agents with a large window and a small one."""
    environ = {
        "FAIRLEAD_MODEL": "openai/scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "scripted",
    }
    sets = (
        "agents.main.mode=allow-all",
        "agents.small.mode=allow-all",
        "agents.small.context_window=9000",
        'models.entries={"openai/scripted": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}}',
    )
    with FairleadUp(tmp_path_factory.mktemp("compaction") / "home", sets=sets, environ=environ) as running:
        yield running


FILLING = "lorem ipsum dolor sit amet " * 60


def summary(tab: Tab) -> Locator:
    """The line that stands for a summary; it opens it."""
    return tab.log.get_by_role("button", name=re.compile("Earlier messages are summarised"))


def used(tab: Tab) -> int:
    """Tokens of the context window that the head of the session shows as used."""
    return int(tab.page.get_by_role("meter").get_attribute("aria-valuenow") or 0)


def test_a_summary_is_asked_for_with_instructions_and_taken_back(up: FairleadUp, new_tab: NewTab) -> None:
    session = up.session(title="Invoices")
    for number in range(4):
        up.ask(f'op=M{number} answer="answer {number}" {FILLING}', session=session)
    tab, other = new_tab(), new_tab(**PHONE, color_scheme="dark")
    for each in (tab, other):
        each.go(f"/s/{session}")
        each.wait_ends(4)
    before = used(tab)
    tab.page.get_by_role("button", name="This session").click()
    tab.page.get_by_role("menuitem", name="Summarise earlier messages").click()
    dialog = tab.page.get_by_role("dialog", name="Summarise earlier messages")
    box = dialog.get_by_role("textbox")
    expect(box).to_be_focused()
    box.fill(
        'Keep the numbers. summarising=2 summary="## Goal\nPay the invoices.\n\n'
        '## Identifiers and promises\n- INV-2041\n- INV-2042"'
    )
    tab.shoot("asked")
    box.press("Control+Enter")
    for each in (tab, other):
        expect(each.log.get_by_text("Summarising earlier messages for the model")).to_be_visible()
    tab.shoot("progress")
    for each in (tab, other):
        expect(summary(each)).to_contain_text(re.compile(r"[\d.]+k? → [\d.]+k? tokens"))
        expect(each.said).to_have_count(4)
        expect(each.replies).to_have_count(4)
    assert used(tab) < before
    tab.page.reload()
    summary(tab).click()
    expect(tab.log.get_by_text("INV-2042", exact=True)).to_be_visible()
    expect(tab.log.get_by_text("Asked for with “Keep the numbers.")).to_be_visible()
    expect(tab.log.get_by_text("Written by openai/scripted")).to_be_visible()
    tab.shoot("summary")
    tab.log.get_by_role("button", name="From here on the model still has every word").click()
    expect(tab.log.locator("[data-shown]")).to_be_focused()
    summary(other).click()
    other.shoot("phone")
    assert not has_sideways_scrolling(other)

    tab.log.get_by_role("button", name="Undo").click()
    for each in (tab, other):
        expect(each.log.get_by_role("button", name="Summary taken back")).to_be_visible()
        expect(each.log.get_by_role("button", name="Undo")).to_have_count(0)
    assert used(tab) == before
    tab.shoot("undone")
    tab.page.reload()
    expect(tab.log.get_by_role("button", name="Summary taken back")).to_be_visible()
    tab.say('op=M5 answer="goes on"')
    expect(tab.replies.last).to_contain_text("goes on")


def test_a_summary_that_is_not_made_says_why_and_one_that_takes_long_can_be_stopped(
    up: FairleadUp, tab: Tab
) -> None:
    session = up.session()
    up.ask('op=N1 answer="short"', session=session)
    tab.expect_trouble("409")
    tab.go(f"/s/{session}")
    tab.wait_ends()
    tab.say("/compact")
    why = "Earlier messages were not summarised: there is nothing to compact"
    expect(tab.log.get_by_text(why)).to_be_visible()
    tab.shoot("too-short")
    for number in (2, 3):
        up.ask(f'op=N{number} answer="longer" {FILLING}', session=session)
    tab.wait_ends(3)
    tab.say('/compact summarising=60 summary="too late"')
    expect(tab.log.get_by_text("Summarising earlier messages for the model")).to_be_visible()
    tab.log.get_by_role("button", name="Stop").click()
    expect(tab.log.get_by_text("Earlier messages were not summarised: aborted")).to_be_visible()
    tab.say('op=N4 answer="went on"')
    expect(tab.replies.last).to_contain_text("went on")


def test_a_window_that_is_nearly_full_is_made_free_by_itself_and_the_page_says_so(
    up: FairleadUp, tab: Tab
) -> None:
    session = up.session(agent="small", title="Long")
    for number in range(5):
        up.ask(f'op=T{number} summary="All of it." answer="answer {number}" {FILLING * 2}', session=session)
    tab.go(f"/s/{session}")
    tab.wait_ends(5)
    tab.say(f'op=T5 answer="answer 5" {FILLING * 2}')
    tab.wait_ends(6)
    expect(summary(tab)).to_have_count(1)
    summary(tab).click()
    expect(tab.log.get_by_text("the context window was nearly full")).to_be_visible()
    expect(tab.log.get_by_text("All of it.", exact=True)).to_be_visible()
    tab.shoot("automatic")
    expect(tab.said).to_have_count(6)
    tab.log.get_by_role("button", name="Undo").click()
    expect(tab.log.get_by_role("button", name="Summary taken back")).to_be_visible()
