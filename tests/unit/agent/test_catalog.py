"""What the agent keeps of executors: what it needs, and no more for as long as it runs."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead_agent.catalog import FORGET_S, MAX_HOSTS, MAX_INSTRUCTIONS, MAX_TOOL_SETS, Catalog
from fairlead_agent.recent import Recent
from fairlead_common.bus import Record
from fairlead_common.entries import Placement
from fairlead_common.messages import ExecutorInfo, ToolCall, ToolSpec


class Clock:
    """A loop's clock that a test sets."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


class Answering:
    """A bus on which every workspace has instructions of its own."""

    asked = 0

    async def request(self, subject: str, data: bytes, *, timeout_s: float) -> Any:
        self.asked += 1
        return SimpleNamespace(data=b"of " + data)


def beat(catalog: Catalog, host: str, executor: str, **fields: Any) -> None:
    data = msgspec.json.encode(ExecutorInfo(executor=executor, host=host, **fields))
    catalog._note(Record(f"$KV.executors.{host}.{executor}", 1, data, {}))


def test_what_was_used_last_is_kept() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.put("a", 1)
    recent.put("b", 2)
    assert recent.get("a") == 1
    recent.put("c", 3)
    assert (recent.get("a"), recent.get("b"), recent.get("c"), len(recent)) == (1, None, 3, 2)


def test_executors_that_their_host_has_outlived_are_forgotten_and_its_last_word_is_not(clock: Clock) -> None:
    catalog = Catalog(cast(Any, None))
    beat(catalog, "alone", "old", default_workspace="/w")
    for number in range(50):
        beat(catalog, "busy", f"e{number}")
        clock.now_s += FORGET_S / 10
    assert len(catalog._executors) <= 12
    assert ("busy", "e49") in catalog._executors
    assert catalog.default_workspace("alone") == "/w"


def test_hosts_are_bounded_and_those_that_are_silent_longest_go(clock: Clock) -> None:
    catalog = Catalog(cast(Any, None))
    for number in range(MAX_HOSTS + 5):
        beat(catalog, f"h{number}", "e")
        clock.now_s += 1
    assert len(catalog._heard) == len(catalog._executors) == MAX_HOSTS
    assert ("h4", "e") not in catalog._executors
    assert ("h5", "e") in catalog._executors


async def test_tool_sets_and_instructions_are_bounded() -> None:
    bus = Answering()
    catalog = Catalog(cast(Any, bus))
    spec = ToolSpec(name="read", description="", parameters={"type": "object"})
    for number in range(MAX_TOOL_SETS + 20):
        beat(catalog, "h", "e", tools=[msgspec.structs.replace(spec, description=str(number))])
        catalog.tools("h", ["*"])
    assert len(catalog._tools) == MAX_TOOL_SETS
    assert catalog.tools("h", ["*"]) is catalog.tools("h", ["*"])
    for number in range(MAX_INSTRUCTIONS + 20):
        text = await catalog.instructions(Placement(host="h", workspace=f"w{number}"))
        assert text == f"of w{number}"
    assert len(catalog._instructions) == MAX_INSTRUCTIONS
    before = bus.asked
    await catalog.instructions(Placement(host="h", workspace=f"w{MAX_INSTRUCTIONS}"))
    assert bus.asked == before


async def test_the_root_of_a_workspace_is_known_from_what_its_host_says() -> None:
    catalog = Catalog(cast(Any, None))
    call = ToolCall(call_id="c", session="s", name="read", arguments={}, token="t", workspace="site")
    assert catalog.root(call, "h") == ""
    beat(catalog, "h", "e", workspace_root="/named")
    assert catalog.root(call, "h") == "/named/site"
