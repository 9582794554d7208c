"""How tool calls look in a real browser: diffs, test results, pages, pictures, and tools from elsewhere."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.e2e import test_web
from tests.e2e.tab import Tab
from tests.support.fairlead_up import FairleadUp
from tests.support.mcp_servers import SERVER
from tests.support.png import png
from tests.support.scripted_model import ModelProcess

pytestmark = test_web.pytestmark

model, browser, new_tab, tab = test_web.model, test_web.browser, test_web.new_tab, test_web.tab

PATCH = """*** Begin Patch
*** Update File: shop/cart.py
@@
 def total(prices):
-    return sum(prices)
+    # Without the deposit.
+    return sum(prices) - 1
*** Add File: shop/notes.txt
+--- not a header
+++ either
*** End Patch
"""
CART = "def total(prices):\n    return sum(prices)\n"
TESTS = """from cart import total


def test_adds():
    assert total([1, 2]) == 3


def test_is_nothing_without_prices():
    assert total([]) == 0


def test_gives_a_discount():
    assert total([10, 10]) == 18, "no discount yet"
"""


class Site(BaseHTTPRequestHandler):
    """`/old` has moved to `/new`."""

    def do_GET(self) -> None:
        if self.path == "/old":
            self.send_response(302)
            self.send_header("Location", "/new")
            self.end_headers()
            return
        body = b"<html><head><title>A new page</title></head><body><p>It lives here now.</p></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(5)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, model: ModelProcess, site: str) -> Iterator[FairleadUp]:
    folder = tmp_path_factory.mktemp("cards")
    (folder / "desk.py").write_text(SERVER)
    environ = {
        "FAIRLEAD_MODEL": "openai/scripted",
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "scripted",
    }
    desk = {
        "command": sys.executable,
        "args": [str(folder / "desk.py")],
        "env": {"JOURNAL": str(folder / "journal")},
    }
    sets = (
        "agents.main.mode=allow-all",
        'agents.main.tools=["full"]',
        f"tools.mcp.desk={json.dumps(desk)}",
        f'tools.web.allow_private=["{site}"]',
    )
    with FairleadUp(folder / "home", sets=sets, environ=environ) as running:
        yield running


@pytest.fixture
def shop(up: FairleadUp) -> Path:
    """A small project under git, with one test that fails."""
    folder = up.workspace / "shop"
    folder.mkdir(exist_ok=True)
    (folder / "cart.py").write_text(CART)
    (folder / "notes.txt").unlink(missing_ok=True)
    (folder / "test_cart.py").write_text(TESTS)
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    who = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "a shop", "--allow-empty"]):
        subprocess.run(["git", *words], cwd=folder, check=True, timeout=20)
    return folder


def call(tab: Tab, tool: str, arguments: dict[str, object]) -> Locator:
    """Have one tool called in a new chat; the line of the call."""
    written = json.dumps(arguments, separators=(",", ":")).replace(" ", "\\u0020")
    tab.begin(f"op=C1 steps=1 tool={tool} args={written}")
    tab.wait_ends()
    return tab.replies.get_by_role("button", expanded=False).first


def test_a_patch_shows_the_files_it_touched_and_what_changed_in_each(
    up: FairleadUp, tab: Tab, shop: Path
) -> None:
    line = call(tab, "apply_patch", {"patch": PATCH})
    expect(line).to_contain_text("shop/cart.py, shop/notes.txt")
    expect(line).to_contain_text("+4")
    expect(line).to_contain_text("\N{MINUS SIGN}1")
    line.click()
    changes = tab.log.get_by_role("group", name="Changes")
    expect(changes).to_contain_text("# Without the deposit.")
    expect(changes).to_contain_text("--- not a header")
    assert "either" in (shop / "notes.txt").read_text()


def test_changes_of_a_reply_are_listed_and_then_undone(up: FairleadUp, tab: Tab, shop: Path) -> None:
    before = (shop / "cart.py").read_bytes()
    call(tab, "apply_patch", {"patch": PATCH})
    assert (shop / "cart.py").read_bytes() != before
    tab.log.get_by_role("button", name="Undo changes to files").click()
    dialog = tab.page.get_by_role("dialog")
    listed = dialog.get_by_role("list", name="Files").get_by_role("listitem")
    expect(listed).to_have_text(["shop/cart.pyrestored", "shop/notes.txtremoved"])
    dialog.get_by_role("button", name="Cancel").click()
    assert (shop / "cart.py").read_bytes() != before
    (shop / "notes.txt").write_text("a person's words")
    tab.log.get_by_role("button", name="Undo changes to files").click()
    expect(listed.last).to_contain_text("changed by others since")
    dialog.get_by_role("button", name="Restore these too").click()
    expect(tab.log).to_contain_text(
        "Changes to files were undone: shop/cart.py (restored), shop/notes.txt (removed)"
    )
    assert (shop / "cart.py").read_bytes() == before
    assert not (shop / "notes.txt").exists()


def test_failed_tests_are_counted_on_the_line_and_listed_with_their_places(
    up: FairleadUp, tab: Tab, shop: Path
) -> None:
    line = call(tab, "run_tests", {"path": "shop"})
    expect(line).to_contain_text("2 passed")
    expect(line).to_contain_text("1 failed")
    expect(line).to_contain_text("exit 1")
    line.click()
    listed = tab.log.get_by_role("list", name="Problems").get_by_role("listitem")
    problems = listed.filter(has_text="test_cart.py")
    expect(problems).to_have_count(1)
    expect(problems).to_contain_text("test_cart.py:13")
    expect(problems).to_contain_text("test_gives_a_discount")
    expect(problems).to_contain_text("no discount yet")


def test_a_diff_of_git_is_shown_once(up: FairleadUp, new_tab: test_web.NewTab, shop: Path) -> None:
    (shop / "cart.py").write_text(CART.replace("sum(prices)", "sum(prices) * 0.9"))
    tab = new_tab(color_scheme="dark")
    line = call(tab, "git_diff", {"path": "shop"})
    expect(line).to_contain_text("+1")
    line.click()
    expect(tab.log.get_by_role("group", name="Changes")).to_contain_text("sum(prices) * 0.9")
    expect(tab.log.get_by_text("Output", exact=True)).to_have_count(0)


def test_a_page_that_has_moved_says_where_it_was_found(up: FairleadUp, tab: Tab, site: str) -> None:
    line = call(tab, "web_fetch", {"url": f"http://{site}/old"})
    expect(line).to_contain_text(f"http://{site}/old")
    line.click()
    facts = tab.log.get_by_role("definition")
    expect(facts.filter(has_text=f"http://{site}/new")).to_be_visible()
    expect(facts.filter(has_text="A new page")).to_be_visible()
    expect(tab.log.get_by_role("link", name=f"http://{site}/new")).to_have_count(0)


def test_a_picture_is_shown(up: FairleadUp, tab: Tab) -> None:
    (up.workspace / "swatch.png").write_bytes(png(180, 90, b"\x0b\x6b\x5e"))
    line = call(tab, "read", {"path": "swatch.png"})
    line.click()
    picture = tab.log.get_by_role("img")
    expect(picture).to_have_attribute("src", re.compile("^blob:"))  # before that it is being fetched
    assert picture.evaluate("async (image) => (await image.decode(), image.naturalWidth)") == 180


def test_a_tool_from_elsewhere_says_where_from(up: FairleadUp, tab: Tab) -> None:
    up.wait_printed("mcp_tools_changed", 60.0)
    line = call(tab, "mcp__desk__echo", {"text": "anybody there?"})
    expect(line).to_contain_text("MCP")
    expect(line).to_contain_text("desk")
    expect(line).to_have_accessible_name(re.compile(r"MCP\s?desk . echo anybody there\?"))
    line.click()
    expect(tab.log.locator("pre").last).to_contain_text("anybody there?")


def test_a_process_in_the_background_says_how_it_is_until_it_ends(up: FairleadUp, tab: Tab) -> None:
    line = call(tab, "bash", {"command": "echo up; exec cat", "background": True})
    expect(line).to_contain_text("in the background")
    session = tab.page.url.rpartition("/")[2]
    results = [entry["message"] for entry in up.entries(session) if entry["type"] == "message"]
    name = next(one["outcome"]["details"]["process"] for one in results if one["role"] == "tool_result")
    tab.say(f'op=C2 steps=1 tool=process args={{"action":"poll","process":"{name}"}}')
    tab.wait_ends(2)
    tab.tool(f"poll {name}").click()
    facts = tab.log.get_by_role("definition")
    expect(facts.filter(has_text="running for")).to_be_visible()
    expect(facts.filter(has_text="echo up; exec cat")).to_be_visible()
    tab.say(f'op=C3 steps=1 tool=process_control args={{"action":"kill","process":"{name}"}}')
    tab.wait_ends(3)
    tab.tool(f"kill {name}").click()
    expect(facts.filter(has_text="ended")).to_be_visible()
