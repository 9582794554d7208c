"""A browser tab on Fairlead that keeps note of everything a page must not do.

Console errors (breaches of the content security policy are among them), uncaught exceptions and requests
to another origin are troubles; `check` fails on those that the test has not expected beforehand.
"""

import re
import shutil
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request, expect

EVIDENCE = Path(__file__).parents[1] / "_evidence" / "e2e"
PATIENCE_MS = 40_000
_KEY_MS = 5_000  # within which a key has done its work

# What the browser itself writes on the console when a request gets no answer.
UNREACHABLE = r"Failed to load resource: net::ERR_"

# ... and when an interface of this machine comes or goes, as with every container; it asks again by itself.
_NETWORK_CHANGED = r"net::ERR_NETWORK_CHANGED"

expect.set_options(timeout=PATIENCE_MS)


def find_chromium() -> str | None:
    """The program of an installed Chromium or Chrome."""
    return next(filter(None, map(shutil.which, ("/usr/bin/chromium", "chromium", "google-chrome"))), None)


class Tab:
    """One page in a context of its own.

    Args:
        name: of the screenshots.
        token: logs the context in; empty: a stranger.
        options: of `Browser.new_context`.
    """

    def __init__(
        self, browser: Browser, base_url: str, name: str, *, token: str = "", **options: Any
    ) -> None:
        self.base_url = base_url
        self.name = name
        self.troubles: list[str] = []
        self.expected: list[str] = [_NETWORK_CHANGED]
        size = {"width": 1180, "height": 800}
        self.context: BrowserContext = browser.new_context(
            base_url=base_url, **{"viewport": size, "reduced_motion": "reduce", **options}
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.context.on("console", self._on_console)
        self.context.on("weberror", lambda error: self.troubles.append(f"uncaught: {error.error}"))
        self.context.on("request", self._on_request)
        self.page: Page = self.context.new_page()
        if token:
            answer = self.context.request.post("/api/login", data={"token": token})
            assert answer.status == 204, answer.text()
            self.expected.append("favicon.ico")  # which browsers want for a page that names no icon
            self.page.goto("/healthz")  # for the origin's storage
            value = answer.headers["x-fairlead-page"]
            self.page.evaluate("value => localStorage.setItem('fairlead.page', value)", value)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text} ({message.location['url']})")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.base_url}/", "data:", "blob:")):
            self.troubles.append(f"request to another origin: {request.url}")

    def expect_trouble(self, pattern: str) -> None:
        """From now on troubles that contain this regular expression are fine."""
        self.expected.append(pattern)

    def check(self) -> None:
        """Fail on troubles that were not expected."""
        found = [text for text in self.troubles if not any(re.search(one, text) for one in self.expected)]
        assert not found, "\n".join(found)

    def shoot(self, moment: str = "") -> None:
        """Leave a screenshot for people to look at."""
        EVIDENCE.mkdir(parents=True, exist_ok=True)
        suffix = f"-{moment}" if moment else ""
        self.page.screenshot(path=EVIDENCE / f"{self.name}{suffix}.png", animations="disabled")

    def close(self) -> None:
        self.context.close()

    # -- what one does ---------------------------------------------------------

    def go(self, path: str = "/") -> None:
        """Open an address of the application."""
        self.page.goto(path, wait_until="domcontentloaded")

    def begin(self, text: str) -> str:
        """Say `text` in a new chat; the id of the session."""
        self.go("/")
        self.say(text)
        self.page.wait_for_url("**/s/*")
        return self.page.url.rpartition("/")[2]

    def say(self, text: str, key: Literal["Enter", "Alt+Enter"] = "Enter") -> None:
        """Type and send it with `key`."""
        self.composer.fill(text)
        self.composer.press(key)

    def choose(self, menu: str, choice: str) -> None:
        """Pick a choice of the menu whose button's name begins with `menu`."""
        self.page.get_by_role("button", name=re.compile(f"^{re.escape(menu)}")).click()
        self.page.get_by_role("menuitemradio", name=re.compile(f"^{re.escape(choice)}")).click()

    def choose_item(self, menu: str, choice: str) -> None:
        """Do what an item of a menu says."""
        self.page.get_by_role("button", name=menu, exact=True).click()
        self.page.get_by_role("menuitem", name=choice, exact=True).click()

    def open_palette(self) -> Locator:
        """The palette, called by its keys; a page that is just shown may not listen to keys yet."""
        palette = self.page.get_by_role("dialog", name="Find sessions and actions")
        for _ in range(PATIENCE_MS // _KEY_MS):
            self.page.keyboard.press("Control+k")
            try:
                expect(palette).to_be_visible(timeout=_KEY_MS)
            except AssertionError:
                continue
            return palette
        raise AssertionError("the palette does not open")

    # -- what one sees ---------------------------------------------------------

    @property
    def composer(self) -> Locator:
        return self.page.get_by_label("Message", exact=True)

    @property
    def log(self) -> Locator:
        return self.page.get_by_role("log")

    @property
    def replies(self) -> Locator:
        return self.page.get_by_role("article", name="Assistant")

    @property
    def said(self) -> Locator:
        return self.page.get_by_role("article", name="You")

    @property
    def chips(self) -> Locator:
        return self.page.get_by_role("list", name="Queued messages").get_by_role("listitem")

    @property
    def card(self) -> Locator:
        """The card of an approval."""
        return self.page.locator("[data-approval]")

    def tool(self, said: str) -> Locator:
        """The line of a tool call that contains `said`."""
        return self.replies.get_by_role("button", expanded=None).filter(has_text=said)

    def words(self) -> str:
        """All that the assistant says on the page, with single spaces."""
        return " ".join(" ".join(self.replies.all_inner_texts()).split())

    def wait_ends(self, runs: int = 1) -> None:
        """Wait until the page shows that so many runs have ended."""
        expect(self.log.locator("[data-run-end]")).to_have_count(runs)

    def wait_state(self, state: str) -> None:
        """Wait for a word in the head of the session: `Idle`, `Running`, `Needs you`."""
        expect(self.page.locator("main > header").get_by_role("status")).to_have_text(state)

    def wait_words(self, at_least: int, below: int) -> None:
        """Wait until at least so many words of a reply stand there, and see that they are not all yet."""
        count = self.page.wait_for_function(
            """at_least => {
                const replies = [...document.querySelectorAll('article[aria-label=Assistant]')]
                const texts = replies.map(reply => reply.innerText)
                const count = texts.join(' ').split(/\\s+/).filter(word => word === 'word').length
                return count >= at_least && count
            }""",
            arg=at_least,
        ).json_value()
        assert at_least <= count < below, f"{count} words were there at once"
