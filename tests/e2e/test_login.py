"""Logins in a real browser: what other local servers and other tabs can do with them, and to them."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from tests.e2e import test_web
from tests.e2e.tab import Tab
from tests.e2e.test_web import NewTab
from tests.support.fairlead_up import FairleadUp

pytestmark = test_web.pytestmark

model, up, browser = test_web.model, test_web.up, test_web.browser
new_tab, tab = test_web.new_tab, test_web.tab

HEADING = "What should be done?"
SIGN_IN = "Sign in to Fairlead"


class Neighbour(BaseHTTPRequestHandler):
    """Another server on this machine: notes what browsers send it, and serves one page."""

    page = ""
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        type(self).seen.append(dict(self.headers.items()))
        body = self.page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def neighbour() -> Iterator[str]:
    """The address of another server at the gateway's host name."""
    Neighbour.page, Neighbour.seen = "<h1>a development server</h1>", []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Neighbour)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def visit(tab: Tab, address: str) -> None:
    """Open a page of another origin in the same browser."""
    tab.expect_trouble(f"request to another origin: {address}")
    tab.expect_trouble(r"\(" + address)  # what the browser writes about that page
    tab.page.goto(address)


def test_another_local_server_cannot_use_the_cookie_that_the_browser_hands_it(
    up: FairleadUp, new_tab: NewTab, neighbour: str
) -> None:
    tab = new_tab(stranger=True)
    tab.go(urlsplit(up.cli("login").stdout.strip())._replace(scheme="", netloc="").geturl())
    expect(tab.page.get_by_role("heading", name=HEADING)).to_be_visible()
    assert "#" not in tab.page.url
    visit(tab, f"{neighbour}/")
    expect(tab.page.get_by_role("heading", name="a development server")).to_be_visible()
    cookie = next(sent["Cookie"] for sent in Neighbour.seen if "Cookie" in sent)
    assert cookie.startswith("fairlead=fl1.")  # the browser does that; so it must be worth nothing
    value = cookie.partition("=")[2]
    for headers in (
        {"Cookie": cookie},
        {"Cookie": cookie, "Origin": up.base_url, "Sec-Fetch-Site": "same-origin"},
        {"Cookie": cookie, "X-Fairlead-Page": value},
        {"Authorization": f"Bearer {value}"},
    ):
        for method, path in (("GET", "/api/me"), ("GET", "/api/news"), ("POST", "/api/sessions")):
            with httpx.stream(method, f"{up.base_url}{path}", headers=headers, timeout=20) as answer:
                assert answer.status_code == 401, (method, path)
    tab.go("/approvals")  # and the login itself goes on
    expect(tab.page.get_by_role("heading", name="Approvals", exact=True)).to_be_visible()


def test_a_page_of_another_server_can_neither_read_nor_break_the_login(
    up: FairleadUp, new_tab: NewTab, neighbour: str
) -> None:
    code = up.cli("login").stdout.strip()
    tries = "".join(f"<img src='{up.base_url}/login?code=q{n}'>" for n in range(12))
    Neighbour.page = f"""<h1>evil</h1>{tries}<img src='{code}'><iframe src='{code}'></iframe>
        <a id=go href='{up.base_url}/#page=a-value-of-somebody-else'>go</a>"""
    tab = new_tab()
    tab.go("/")
    expect(tab.page.get_by_role("heading", name=HEADING)).to_be_visible()
    tab.expect_trouble("40[13]")  # the wrong value, asked about once
    tab.expect_trouble("ERR_BLOCKED_BY_RESPONSE")
    tab.expect_trouble("violates the following Content Security Policy directive")
    tab.expect_trouble("ERR_FAILED")
    visit(tab, f"{neighbour}/")
    tab.page.wait_for_load_state("networkidle")
    reached = tab.page.evaluate(
        """async base => {
            const options = {credentials: 'include', headers: {'x-fairlead-page': 'guess'}}
            return fetch(base + '/api/me', options).then(() => 'answered', () => 'refused')
        }""",
        up.base_url,
    )
    assert reached == "refused"
    right = httpx.get(f"{up.base_url}/api/me", headers={"Authorization": f"Bearer {up.token}"}, timeout=20)
    assert right.status_code == 200  # no one was locked out
    tab.page.click("#go")
    expect(tab.page.get_by_role("heading", name=HEADING)).to_be_visible()
    assert tab.page.url == f"{up.base_url}/"
    second = new_tab(stranger=True)
    second.go(urlsplit(code)._replace(scheme="", netloc="").geturl())  # the code was not used up
    expect(second.page.get_by_role("heading", name=HEADING)).to_be_visible()


def test_a_login_in_one_tab_is_one_in_all(up: FairleadUp, new_tab: NewTab) -> None:
    first = new_tab(stranger=True)
    first.expect_trouble("401")
    first.go("/")
    expect(first.page.get_by_role("heading", name=SIGN_IN)).to_be_visible()
    other = first.context.new_page()
    other.goto(up.cli("login").stdout.strip())
    expect(other.get_by_role("heading", name=HEADING)).to_be_visible()
    expect(first.page.get_by_role("heading", name=HEADING)).to_be_visible()  # without a reload
    other.goto(up.cli("login").stdout.strip())  # a second login takes the place of the first
    expect(other.get_by_role("heading", name=HEADING)).to_be_visible()
    first.say("op=L1")
    first.wait_ends()
    first.page.reload()
    first.wait_ends()
    first.page.get_by_role("button", name="Sign out").click()
    for page in (first.page, other):
        expect(page.get_by_role("heading", name=SIGN_IN)).to_be_visible()


def test_a_long_output_is_downloaded_as_a_file(up: FairleadUp, tab: Tab) -> None:
    tab.begin('op=L2 steps=1 run="seq 30000"')
    tab.wait_ends()
    tab.tool("seq 30000").click()
    with tab.page.expect_download() as started:
        tab.page.get_by_role("link", name="Full output").click()
    assert started.value.path().read_text().split() == [str(n) for n in range(1, 30_001)]
