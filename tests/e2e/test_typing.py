"""Typing in a real browser: a key costs the page the same however long the session is."""

import itertools
import json
import re
from statistics import median
from typing import Any

import pytest
from playwright.sync_api import CDPSession, Route, expect

from tests.e2e import test_web
from tests.e2e.tab import UNREACHABLE, Tab
from tests.support.fairlead_up import FairleadUp, Json

pytestmark = [*test_web.pytestmark, pytest.mark.timeout(240)]

model, up, browser, new_tab = test_web.model, test_web.up, test_web.browser, test_web.new_tab

KEYS = 30
ROUNDS = 2
MOST = 2.5  # times the cost in a short session; with each message left out by itself it was 3.7


def run_of(entries: list[Json], turns: int) -> list[Json]:
    """The log of a run with one tool call, as if it had called the tool so often."""
    at = [entry.get("message", {}).get("role") == "tool_result" for entry in entries].index(True)
    before, call, result, after = entries[: at - 1], entries[at - 1], entries[at], entries[at + 1 :]
    numbered: list[Json] = []
    for turn in range(turns):
        ids = {call["message"]["content"][0]["call_id"]: f"call_{turn}"}
        ids |= {entry["id"]: f"{entry['id'][:-6]}{turn:06}" for entry in (call, result)}
        text = json.dumps([call, result])
        for old, new in ids.items():
            text = text.replace(old, new)
        numbered += json.loads(text)
    log = [*before, *numbered, *after]
    return [
        {name: entry[name] for name in entry if name != "index"} | {"seq": seq}
        for seq, entry in enumerate(log, 1)
    ]


def show(tab: Tab, session: str, log: list[Json]) -> None:
    """Open the session with this log instead of its own, all of it at once."""

    def answer(route: Route) -> None:
        route.fulfill(json={"entries": log, "next": None})

    tab.expect_trouble(UNREACHABLE)
    tab.page.route(re.compile(f"/api/sessions/{session}/entries"), answer)
    tab.page.route(re.compile(f"/api/sessions/{session}/events"), lambda route: route.abort())
    tab.go(f"/s/{session}")
    tab.wait_ends()
    turns = sum(entry.get("message", {}).get("role") == "tool_result" for entry in log)
    expect(tab.page.locator("article[aria-label=Assistant]")).to_have_count(turns + 1)
    tab.composer.click()


def cost_ms(tab: Tab, keys: tuple[str, ...]) -> float:
    """Processor time of the page's main thread until a key is on the screen; the median."""
    cdp = tab.context.new_cdp_session(tab.page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    costs: list[float] = []
    for key in itertools.islice(itertools.cycle(keys), KEYS):
        before = busy_s(cdp)
        tab.page.keyboard.press(key)
        tab.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        costs.append((busy_s(cdp) - before) * 1000)
    cdp.detach()
    return median(costs)


def busy_s(cdp: CDPSession) -> float:
    metrics: list[dict[str, Any]] = cdp.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


def test_a_key_costs_as_little_in_a_long_session_as_in_a_short_one(
    up: FairleadUp, new_tab: test_web.NewTab
) -> None:
    session = up.session()
    up.prompt(session, 'op=T1 steps=1 run="seq 20"')
    up.wait_idle(session)
    entries = up.entries(session)
    short, long = new_tab(), new_tab()
    show(short, session, run_of(entries, 25))
    show(long, session, run_of(entries, 2000))
    found: dict[Tab, list[float]] = {short: [], long: []}
    for tab in [short, long] * (ROUNDS + 1):
        tab.page.bring_to_front()
        letters, lines = cost_ms(tab, ("e", "a", "Space")), cost_ms(tab, ("Shift+Enter", "Backspace"))
        found[tab].append(letters + lines)
    least = [min(found[tab][1:]) for tab in (short, long)]  # the first round is to get warm
    print(f"ms for a letter and a line break: {least[0]:.1f} in the short, {least[1]:.1f} in the long one")
    assert least[1] <= MOST * least[0], found.values()
