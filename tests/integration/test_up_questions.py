"""A server's question in a whole Fairlead: kill -9 of gateway and agent while it is open changes nothing."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fairlead_up import FairleadUp, HttpError
from tests.support.mcp_servers import ASKING_SERVER
from tests.support.scripted_model import ModelProcess

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "journal"


@pytest.fixture(scope="module")
def up(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadUp]:
    server = journal.with_name("asking.py")
    server.write_text(ASKING_SERVER)
    shop = {"command": sys.executable, "args": [str(server)], "env": {"JOURNAL": str(journal), "OLD": "1"}}
    sets = ["agents.main.mode=allow-all"]
    with ModelProcess(tmp_path_factory.mktemp("model") / "model.jsonl", fsync=False) as model:
        environ = {
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "test",
            "FAIRLEAD_MODEL": "openai/scripted",
        }
        home = tmp_path_factory.mktemp("up") / "home"
        with FairleadUp(home, sets=sets, environ=environ) as running:
            set_ = running.cli("config", "set", "tools.mcp.shop", json.dumps(shop))
            assert set_.returncode == 0, set_.stderr
            yield running


def question(up: FairleadUp, session: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := up.api("GET", f"/api/approvals?session={session}")["approvals"]:
            return dict(found[0])
        time.sleep(0.1)
    raise AssertionError("nobody was asked")


def offered(up: FairleadUp) -> None:
    deadline = time.monotonic() + 60
    while "6 tools" not in up.cli("mcp", "ls").stdout:
        assert time.monotonic() < deadline, up.cli("mcp", "ls")
        time.sleep(0.2)


def test_a_question_outlives_gateway_and_agent_and_its_call_starts_once(
    up: FairleadUp, journal: Path
) -> None:
    offered(up)
    session = up.session()
    up.prompt(session, 'op=Q1 steps=1 tool=mcp__shop__old_order args={"item":"tea"}')
    asked = question(up, session)
    assert (asked["kind"], asked["arguments"]["server"]) == ("question", "shop")
    for service in ("gateway", "agent"):
        up.kill(service)
        up.wait_restarted(service)
    assert question(up, session)["id"] == asked["id"]
    path = f"/api/approvals/{asked['id']}"
    with pytest.raises(HttpError) as refused:
        up.api("POST", path, {"answer": {"size": "huge", "count": 2}})
    assert refused.value.status == 400
    up.api("POST", path, {"answer": {"size": "large", "count": 2}, "shown_hash": asked["shown_hash"]})
    with pytest.raises(HttpError) as second:
        up.api("POST", path, {"decision": "deny"})
    assert second.value.status == 409
    assert up.wait_idle(session)[-1]["outcome"] == "completed"
    entries = up.api("GET", f"/api/sessions/{session}/entries?limit=1000")["entries"]
    assert "2 large tea, gift False" in json.dumps(entries)
    assert journal.read_text().count("old_order tea") == 1


def test_a_call_whose_executor_dies_is_unknown_and_its_question_closed(up: FairleadUp, journal: Path) -> None:
    offered(up)
    session = up.session()
    up.prompt(session, 'op=Q2 steps=1 tool=mcp__shop__old_order args={"item":"milk"}')
    question(up, session)
    up.kill("tools")
    up.wait_restarted("tools")
    up.wait_idle(session)
    assert up.api("GET", f"/api/approvals?session={session}")["approvals"] == []
    entries = up.api("GET", f"/api/sessions/{session}/entries?limit=1000")["entries"]
    results = [
        e["message"]["outcome"]["status"]
        for e in entries
        if e.get("message", {}).get("role") == "tool_result"
    ]
    assert results == ["unknown"]
    assert journal.read_text().count("old_order milk") == 1
