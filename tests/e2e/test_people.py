"""Several people at one Fairlead: what the page offers to whom, and what is shared."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e import test_web
from tests.e2e.tab import Tab
from tests.e2e.test_accessible import AXE, violations
from tests.e2e.test_web import NewTab
from tests.support.fairlead_up import FairleadUp, Json

pytestmark = test_web.pytestmark
PHONE = {**test_web.PHONE, "color_scheme": "dark"}
has_sideways_scrolling = test_web.has_sideways_scrolling

# One stack for all of this file: nobody here changes what another test looks at.
model, up, browser = test_web.model, test_web.up, test_web.browser
new_tab, tab = test_web.new_tab, test_web.tab

ROLES = {"vera": "viewer", "olga": "operator", "anna": "approver", "root2": "admin"}


@pytest.fixture(scope="module")
def people(up: FairleadUp) -> dict[str, str]:
    """A token of each user, with all rights of the role."""
    scopes = {"viewer": ["read"], "operator": ["read", "write"], "approver": ["read", "write", "approve"]}
    tokens = {}
    for name, role in ROLES.items():
        up.api("POST", "/api/users", {"name": name, "role": role})
        body = {"user": name, "scopes": scopes.get(role, ["admin"])}
        tokens[name] = up.api("POST", "/api/tokens", body)["token"]
    return tokens


@pytest.fixture
def as_user(
    up: FairleadUp, browser: Browser, people: dict[str, str], request: pytest.FixtureRequest
) -> Iterator[NewTab]:
    """Makes tabs that users are logged in to; they must have no trouble either."""
    tabs: list[Tab] = []

    def make(user: str, **options: object) -> Tab:
        tabs.append(Tab(browser, up.base_url, f"{request.node.name}-{user}", token=people[user], **options))
        return tabs[-1]

    yield make
    for tab in tabs:
        tab.shoot()
        tab.close()
    for tab in tabs:
        tab.check()


def share(up: FairleadUp, session: str, access: str, *users: str) -> None:
    shared: Json = {"access": access, "users": list(users)}
    up.api("PATCH", f"/api/sessions/{session}", {"shared": shared})


def test_what_a_user_may_not_do_is_not_offered_and_a_change_needs_no_reload(
    up: FairleadUp, as_user: NewTab
) -> None:
    session = up.session(mode="ask", title="Release notes")
    up.ask("op=P1 say 20 words", session=session)
    up.prompt(session, 'op=P2 steps=1 run="echo asked"')
    up.wait_approval(session)
    vera, olga = as_user("vera"), as_user("olga")
    vera.go(f"/s/{session}")
    expect(vera.page.get_by_text("it is not shared with you")).to_be_visible()
    expect(vera.page.get_by_role("button", name="New chat")).to_have_count(0)
    vera.expect_trouble("404")

    share(up, session, "view")  # whoever waits at its address sees it appear
    expect(vera.replies.first).to_contain_text("done P1")
    expect(vera.page.locator("[data-read-only]")).to_contain_text("admin shares this session with you")
    expect(vera.composer).to_have_count(0)
    expect(vera.card).to_contain_text("waits for somebody who may decide")
    expect(vera.card.get_by_role("button", name=re.compile("Allow|Deny|Always"))).to_have_count(0)
    for name in (
        "Edit and send again",
        "Fork from here",
        "Answer again",
        "Label",
        "Actions for Release notes",
    ):
        expect(vera.page.get_by_role("button", name=name)).to_have_count(0)
    expect(vera.page.get_by_role("link", name="New chat")).to_have_count(0)
    expect(vera.page.get_by_role("link", name="Release notes")).to_contain_text("admin")
    assert "(1)" not in vera.page.title()
    vera.page.keyboard.press("d")  # no key decides for them
    palette = vera.open_palette()
    expect(palette.get_by_role("option", name="Approvals")).to_be_visible()
    for name in ("New chat", "Stop the run", "Mode: ask"):
        expect(palette.get_by_role("option", name=name)).to_have_count(0)
    vera.page.keyboard.press("Escape")
    assert up.api("GET", f"/api/approvals?session={session}")["approvals"]
    if AXE.exists():
        assert violations(vera) == []
    vera.shoot("reads")

    phone = as_user("olga", **PHONE)
    phone.go(f"/s/{session}")
    expect(phone.page.get_by_role("button", name="Fork it")).to_be_visible()
    assert not has_sideways_scrolling(phone)
    phone.shoot("phone")
    phone.go("/usage")

    olga.go(f"/s/{session}")
    expect(olga.page.locator("[data-read-only]")).to_be_visible()
    share(up, session, "write", "olga", "vera")
    expect(olga.composer).to_be_visible()  # without a reload
    expect(olga.card).to_contain_text("waits for somebody who may decide")
    expect(olga.page.get_by_role("button", name="Mode: ask")).to_be_visible()
    up.api("PATCH", "/api/users/olga", {"role": "approver"})
    try:  # her login has no more scopes than its token
        expect(olga.card.get_by_role("button", name="Allow once")).to_have_count(0)
        up.api("PATCH", "/api/users/olga", {"role": "viewer"})
        expect(olga.page.locator("[data-read-only]")).to_contain_text("role is “viewer”")
        expect(olga.composer).to_have_count(0)
    finally:
        up.api("PATCH", "/api/users/olga", {"role": "operator"})
    expect(olga.composer).to_be_visible()

    anna = as_user("anna")
    share(up, session, "write")
    anna.go(f"/s/{session}")
    expect(anna.page).to_have_title(re.compile(r"^\(1\)"))
    anna.card.get_by_role("button", name="Deny").click()
    expect(anna.card).to_have_count(0)
    anna.say("op=P3 say 5 words")
    expect(olga.page.get_by_role("article", name="anna")).to_contain_text("op=P3")
    expect(anna.said.last).to_contain_text("op=P3")

    for each in (olga, anna):
        each.expect_trouble("404")
    share(up, session, "private")
    gone = olga.page.get_by_role("alert").filter(has_text="no longer shared with you")
    expect(gone).to_be_visible()
    expect(olga.page.get_by_role("link", name="Release notes")).to_have_count(0)
    olga.shoot("lost")
    asked: list[str] = []
    olga.page.on("request", lambda request: asked.append(request.url) if session in request.url else None)
    olga.page.wait_for_timeout(1500)
    assert asked == []  # no loop of refusals


def test_a_user_who_is_disabled_is_signed_out_without_touching_the_page(
    up: FairleadUp, as_user: NewTab, people: dict[str, str]
) -> None:
    up.api("POST", "/api/users", {"name": "gone", "role": "operator"})
    people["gone"] = up.api("POST", "/api/tokens", {"user": "gone", "scopes": ["read", "write"]})["token"]
    tab = as_user("gone")
    tab.go("/schedules")
    expect(tab.page.get_by_role("button", name="New job")).to_be_visible()
    expect(tab.page.get_by_role("button", name="Pause all")).to_have_count(0)
    tab.expect_trouble("401")
    up.api("PATCH", "/api/users/gone", {"disabled": True})
    expect(tab.page.get_by_role("heading", name="Sign in to Fairlead")).to_be_visible()


def test_a_session_is_shared_in_a_dialog_and_lists_tell_whose_they_are(
    up: FairleadUp, as_user: NewTab, tab: Tab, people: dict[str, str]
) -> None:
    anna, olga = as_user("anna", color_scheme="dark"), as_user("olga")
    session = anna.begin("op=S1 steps=1")
    anna.wait_ends(1)
    anna.choose_item("This session", "Share…")
    dialog = anna.page.get_by_role("dialog", name="Share this session")
    expect(dialog.get_by_label("Link", exact=True)).to_have_value(f"{up.base_url}/s/{session}")
    expect(dialog.get_by_role("radio", name="Private")).to_be_checked()
    anna.page.keyboard.press("Tab")
    anna.page.keyboard.press("ArrowDown")
    expect(dialog.get_by_role("radio", name="Others may read", exact=False).first).to_be_checked()
    dialog.get_by_role("radio", name="Only these users").check()
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Name at least one user")
    dialog.get_by_label("Name of a user").fill("nobody-here")
    anna.expect_trouble("409")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("there is no user 'nobody-here'")
    dialog.get_by_role("button", name="Leave out nobody-here").click()
    dialog.get_by_label("Name of a user").fill("Olga")
    dialog.get_by_label("Name of a user").press("Enter")
    expect(dialog.get_by_role("list", name="Users it is shared with")).to_contain_text("olga")
    if AXE.exists():
        assert violations(anna) == []
    anna.shoot("dialog")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(anna.page.get_by_role("button", name=re.compile("^shared, read"))).to_be_visible()
    assert up.api("GET", f"/api/sessions/{session}")["shared"] == {"access": "view", "users": ["olga"]}

    olga.go("/")
    expect(olga.page.get_by_role("link", name="op=S1")).to_contain_text("anna")
    mine = olga.begin("op=S2 steps=1")
    whose = olga.page.get_by_label("Whose sessions")
    whose.select_option("My sessions")
    expect(olga.page.get_by_role("link", name="op=S1")).to_have_count(0)
    expect(olga.page.get_by_role("link", name="op=S2")).to_be_visible()
    whose.select_option("Shared with me")
    expect(olga.page.get_by_role("link", name="op=S2")).to_have_count(0)
    olga.page.get_by_role("link", name="op=S1").click()
    olga.page.get_by_role("button", name=re.compile("^of anna")).click()
    told = olga.page.get_by_role("dialog", name="Share this session")
    expect(told).to_contain_text("anna, who alone can share it")
    expect(told.get_by_role("button", name="Save")).to_have_count(0)
    olga.page.keyboard.press("Escape")
    olga.page.get_by_role("button", name="Fork it").click()
    olga.page.wait_for_function("path => location.pathname !== path", arg=f"/s/{session}")
    expect(olga.composer).to_be_visible()
    assert up.api("GET", f"/api/sessions/{olga.page.url.rpartition('/')[2]}")["owner"] == "olga"

    tab.go(f"/s/{mine}")  # an admin may share it too, and is offered the names
    tab.page.get_by_role("button", name=re.compile("^of olga")).click()
    tab.page.get_by_role("radio", name="Others may read and write").check()
    tab.page.get_by_role("radio", name="Only these users").check()
    expect(tab.page.locator("datalist option")).to_have_count(len(people))
    tab.shoot("admin")
