"""Going on from another message: edited words, other answers, arrows between them, and new sessions."""

import re
import time
from collections.abc import Callable

from playwright.sync_api import Locator, Route, expect

from tests.e2e import test_web
from tests.e2e.tab import PATIENCE_MS, UNREACHABLE, Tab
from tests.e2e.test_web import NewTab
from tests.support.fairlead_up import FairleadUp, Json
from tests.support.waiting import eventually

pytestmark = test_web.pytestmark
PHONE = test_web.PHONE
gate, has_sideways_scrolling = test_web.gate, test_web.has_sideways_scrolling

# The stack, the browser and the tabs are those of the other pages' tests.
model, up, browser, new_tab, tab = (
    test_web.model,
    test_web.up,
    test_web.browser,
    test_web.new_tab,
    test_web.tab,
)


def edit(tab: Tab, number: int, text: str) -> None:
    """Say other words in place of message `number`, from 0."""
    message = tab.said.nth(number)
    message.hover()
    message.get_by_role("button", name="Edit and send again").click()
    box = tab.page.get_by_label("Your message")
    box.fill(text)
    box.press("Enter")


def arrows(tab: Tab) -> Locator:
    return tab.log.get_by_role("group", name="Versions")


def picture(tab: Tab) -> list[str]:
    """What stands in the conversation, and which versions of it."""
    parts = tab.log.locator("article, [aria-label=Versions]").all_inner_texts()
    return [re.sub(r"\s+|\d\d:\d\d", "", part) for part in parts]


def test_edited_words_make_a_branch_and_arrows_lead_between_them(new_tab: NewTab) -> None:
    tab = new_tab()
    session = tab.begin('op=B1 answer="first answer"')
    tab.wait_ends()
    tab.say('op=B2 answer="second answer"')
    tab.wait_ends(2)
    edit(tab, 0, 'op=B3 answer="other answer"')
    expect(tab.replies).to_have_text([re.compile("other answer")])
    expect(tab.said).to_have_count(1)
    expect(arrows(tab)).to_have_text("2/2")
    tab.shoot("edited")

    tab.page.get_by_role("button", name="Previous version").click()
    expect(tab.replies.last).to_contain_text("second answer")
    expect(tab.said).to_have_count(2)
    expect(arrows(tab)).to_have_text("1/2")
    tab.page.reload()
    expect(tab.replies.last).to_contain_text("second answer")
    expect(arrows(tab)).to_have_text("1/2")

    tab.log.get_by_role("button", name="Answer again").last.click()
    expect(arrows(tab)).to_have_text(["1/2", "2/2"])
    tab.shoot("answered-again")

    phone = new_tab(**PHONE)
    phone.go(f"/s/{session}")
    expect(arrows(phone)).to_have_text(["1/2", "2/2"])
    expect(phone.said.first.get_by_role("button", name="Edit and send again")).to_be_visible()
    assert not has_sideways_scrolling(phone)


def test_an_open_run_is_stopped_before_its_message_is_edited(up: FairleadUp, tab: Tab) -> None:
    command, file = gate(up, "edited")
    tab.begin(f'op=B4 steps=1 run="{command}"')
    expect(tab.tool("seq 1200")).to_be_visible()
    message = tab.said.first
    message.hover()
    message.get_by_role("button", name="Edit and send again").click()
    expect(tab.log.get_by_text("The run stops first.")).to_be_visible()
    tab.page.get_by_label("Your message").press("Escape")
    tab.wait_state("Running")
    edit(tab, 0, 'op=B5 answer="instead"')
    expect(tab.replies).to_have_text([re.compile("instead")])
    tab.wait_state("Idle")
    tab.page.get_by_role("button", name="Previous version").click()
    expect(tab.log.locator("[data-run-end=aborted]")).to_be_visible()
    file.touch()


def test_two_browsers_that_change_a_session_at_once_end_with_the_same_picture(new_tab: NewTab) -> None:
    one, two = new_tab(), new_tab()
    session = one.begin('op=B6 answer="begun"')
    one.wait_ends()
    two.go(f"/s/{session}")
    two.wait_ends()
    for tab, words in ((one, "by 1"), (two, "by 2")):
        tab.said.first.hover()
        tab.said.first.get_by_role("button", name="Edit and send again").click()
        tab.page.get_by_label("Your message").fill(f'op=B7 answer="{words}"')
    held: list[Route] = []
    for tab in (one, two):
        tab.expect_trouble("409")
        tab.page.route("**/edit", lambda route: held.append(route))
        tab.page.get_by_label("Your message").press("Enter")
        expect(tab.page.get_by_role("button", name="Sending")).to_be_visible()
    for route in held:
        route.continue_()

    def told() -> Tab | None:
        return next((tab for tab in (one, two) if tab.page.get_by_text("Nothing was changed").count()), None)

    # One of them was first. The other one is told for nine seconds, and still has its words.
    late = eventually(told, "one is told that nothing was changed")
    for tab in (one, two):
        expect(tab.replies).to_have_text([re.compile("by 2" if late is one else "by 1")])
        tab.wait_state("Idle")
    expect(late.composer).to_have_value(re.compile("op=B7"))
    assert len(held) == 2
    expect(arrows(one)).to_have_text("2/2")
    two.log.get_by_role("button", name="Answer again").last.click()
    one.said.first.hover()
    one.said.first.get_by_role("button", name="Fork from here").click()
    one.page.wait_for_url(lambda url: session not in url)
    expect(one.log.get_by_text("Forked from")).to_be_visible()
    expect(one.said).to_have_count(1)
    one.say("op=B8")
    expect(one.replies).to_have_count(1)
    one.page.reload()
    expect(one.said).to_have_count(2)
    one.shoot("fork")

    one.go(f"/s/{session}")
    for tab in (one, two):
        tab.wait_state("Idle")
        expect(arrows(tab)).to_have_count(2)
    assert picture(one) == picture(two)


def test_a_label_leads_back_from_another_branch(new_tab: NewTab) -> None:
    tab = new_tab()
    session = tab.begin('op=B9 answer="the first way"')
    tab.wait_ends()
    tab.said.first.hover()
    tab.said.first.get_by_role("button", name="Label").click()
    box = tab.page.get_by_role("dialog").get_by_label("Label")
    expect(box).to_be_focused()
    box.fill("the beginning")
    box.press("Enter")
    expect(tab.said.first.get_by_role("button", name="the beginning")).to_be_visible()
    tab.log.get_by_role("button", name="Label").last.click()
    tab.page.get_by_role("dialog").get_by_label("Label").fill("worked")
    tab.page.keyboard.press("Enter")
    expect(tab.page.get_by_role("button", name="2 labels")).to_be_visible()
    edit(tab, 0, 'op=B10 answer="the other way"')
    expect(tab.replies).to_have_text([re.compile("the other way")])
    tab.wait_state("Idle")
    tab.page.get_by_role("button", name="2 labels").click()
    tab.shoot("list")
    tab.page.get_by_role("menuitem", name="worked").click()
    expect(tab.replies).to_have_text([re.compile("the first way")])
    expect(tab.log.locator("[data-shown]")).to_contain_text("the first way")

    phone = new_tab(**PHONE, color_scheme="dark")
    phone.go(f"/s/{session}")
    expect(phone.log.get_by_role("button", name="worked")).to_be_visible()
    phone.shoot("labelled")
    assert not has_sideways_scrolling(phone)
    phone.log.get_by_role("button", name="worked").click()
    phone.page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(tab.page.get_by_role("button", name="1 label")).to_be_visible()
    expect(phone.log.get_by_role("button", name="worked")).to_have_count(0)


def test_a_branch_is_left_with_a_summary_of_it_if_that_is_wanted(new_tab: NewTab) -> None:
    tab, other = new_tab(), new_tab()
    session = tab.begin('op=B11 answer="a plan"')
    tab.wait_ends()
    tab.say('op=B12 summarising=2 summary="## Progress\nIt did not work." answer="tried in vain"')
    tab.wait_ends(2)
    other.go(f"/s/{session}")
    other.wait_ends(2)
    tab.log.get_by_role("button", name="Go on from here").first.click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Tell the model what was tried").check()
    tab.shoot("asked")
    dialog.get_by_role("button", name="Go", exact=True).click()
    for each in (tab, other):
        expect(each.log.get_by_text("Summarising the branch that is left")).to_be_visible()
    for each in (tab, other):
        told = each.log.get_by_role("button", name="The model was told what the other branch was about")
        told.click()
        expect(each.log.get_by_text("It did not work.")).to_be_visible()
        expect(each.replies).to_have_text([re.compile("a plan")])
    tab.shoot("left")
    tab.say('op=B13 answer="another plan"')
    expect(tab.replies.last).to_contain_text("another plan")
    tab.wait_state("Idle")
    tab.log.get_by_role("button", name="Go on from here").first.click()
    dialog.get_by_role("button", name="Go", exact=True).click()
    expect(tab.replies).to_have_text([re.compile("a plan")])
    expect(tab.log.get_by_text("You are at an earlier point.")).to_be_visible()


# -- with kills -------------------------------------------------------------------


def live_branch(up: FairleadUp, session: str) -> list[str]:
    """Ids of what is said on the live branch: what the parents of the last entry lead through."""
    entries = up.entries(session)
    parents = {
        entry["id"]: entry.get("parent_id") or before
        for before, entry in zip([None, *(each["id"] for each in entries)], entries, strict=False)
    }
    said = {entry["id"] for entry in entries if is_said(entry)}
    at = entries[-1]["id"]
    chain = [at]
    while (at := parents.get(at)) is not None:
        chain.append(at)
    return [entry for entry in reversed(chain) if entry in said]


def is_said(entry: Json) -> bool:
    return entry["type"] == "message" and entry["message"]["role"] in ("user", "assistant")


def drawn(tab: Tab) -> list[str]:
    """Ids of the messages that the page shows."""
    ids: list[str] = tab.log.locator("article").evaluate_all("all => all.map(one => one.id.slice(2))")
    return ids


def settled(up: FairleadUp, session: str, *tabs: Tab) -> None:
    """Wait until the log rests and all pages show its live branch."""
    deadline = time.monotonic() + 2 * PATIENCE_MS / 1000
    while True:
        for tab in tabs:
            tab.wait_state("Idle")
        seen = [live_branch(up, session), *(drawn(tab) for tab in tabs)]
        starts, ends = (
            sum(entry["type"] == kind for entry in up.entries(session)) for kind in ("run_start", "run_end")
        )
        if starts == ends and all(each == seen[0] for each in seen):
            return
        assert time.monotonic() < deadline, f"{starts} runs began, {ends} ended: {seen}\n{up.tail()}"
        time.sleep(0.2)


def kill(up: FairleadUp, *services: str) -> None:
    """Kill all of these at once, and wait until others have taken their place."""
    old = {service: up.kill(service) for service in services}
    for service, pid in old.items():
        up.wait_restarted(service, old_pid=pid)


def test_two_browsers_change_a_session_at_once_while_agent_and_gateway_are_killed(
    up: FairleadUp, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    for tab in (one, two):
        for trouble in (UNREACHABLE, "409", "502", "503"):
            tab.expect_trouble(trouble)
    session = one.begin('op=K1 answer="begun"')
    one.wait_ends()
    one.say('op=K2 answer="went on"')
    one.wait_ends(2)
    two.go(f"/s/{session}")
    two.wait_ends(2)

    def answer_again() -> None:
        two.log.get_by_role("button", name="Answer again").last.click()

    rounds: list[tuple[Callable[[], None], tuple[str, ...]]] = [
        (answer_again, ("agent",)),
        (lambda: two.say('op=K3 answer="said by two"'), ("gateway",)),
        (answer_again, ("agent", "gateway")),
    ]
    for number, (act, killed) in enumerate(rounds):
        message = one.said.first
        message.hover()
        message.get_by_role("button", name="Edit and send again").click()
        box = one.page.get_by_label("Your message")
        box.fill(f'op=K{4 + number} answer="edited {number}" stall=0.3')
        act()
        box.press("Enter")
        kill(up, *killed)
        expect(one.page.get_by_role("button", name="Sending")).to_have_count(0)
        if box.is_visible():  # it was told that the conversation had gone on, and keeps its words
            box.press("Escape")
        settled(up, session, one, two)
    assert picture(one) == picture(two)
    said = [entry for entry in up.entries(session) if is_said(entry) and "K3" in str(entry["message"])]
    assert sum(entry["message"]["role"] == "user" for entry in said) == 1
    two.shoot("settled")

    before = live_branch(up, session)
    one.said.first.hover()
    one.said.first.get_by_role("button", name="Fork from here").click()
    kill(up, "gateway")
    one.page.wait_for_url(lambda url: session not in url)
    expect(one.said).to_have_count(1)
    one.say("op=K9 in the fork")
    expect(one.replies).to_have_count(1)
    expect(one.said).to_have_count(2)
    assert live_branch(up, session) == before
    one.go(f"/s/{session}")
    settled(up, session, one, two)


def test_a_prompt_that_comes_while_a_branch_is_left_is_on_the_new_one_once_whatever_is_killed(
    up: FairleadUp, new_tab: NewTab
) -> None:
    one, two = new_tab(), new_tab()
    for tab in (one, two):
        for trouble in (UNREACHABLE, "502", "503"):
            tab.expect_trouble(trouble)
    session = one.begin('op=P1 answer="kept"')
    one.wait_ends()
    one.say('op=P2 summarising=3 summary="what was tried" answer="left behind"')
    one.wait_ends(2)
    two.go(f"/s/{session}")
    two.wait_ends(2)
    one.log.get_by_role("button", name="Go on from here").first.click()
    dialog = one.page.get_by_role("dialog")
    dialog.get_by_label("Tell the model what was tried").check()
    dialog.get_by_role("button", name="Go", exact=True).click()
    expect(two.log.get_by_text("Summarising the branch that is left")).to_be_visible()
    two.say('op=P3 answer="on the new branch"')
    kill(up, "agent", "gateway")
    for tab in (one, two):
        expect(tab.replies).to_have_text([re.compile("kept"), re.compile("on the new branch")])
        expect(tab.log.get_by_text("The model was told what the other branch was about")).to_be_visible()
    settled(up, session, one, two)
    said = [entry for entry in up.entries(session) if is_said(entry) and "P3" in str(entry["message"])]
    assert [entry["message"]["role"] for entry in said] == ["user"]
    assert said[0]["id"] in live_branch(up, session)
    two.shoot("settled")
