"""A hostile model in a session that several users write to: it reaches no more than who wrote to it may.

A real Fairlead, with real users; the model is scripted by their words.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.scripted_model import ModelProcess
from tests.support.waiting import eventually

SECRET = "payroll_is_due"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadUp]:
    folder = tmp_path_factory.mktemp("detours")
    with (
        ModelProcess(folder / "model.jsonl", fsync=False) as model,
        FairleadUp(
            folder / "home",
            sets=["models.default=openai/scripted", "agents.main.mode=allow-all"],
            environ={"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"},
        ) as running,
    ):
        eventually(lambda: running.call("GET", "/api/cron/status")[0] == 200, "the scheduler answers")
        for name in ("ann", "bob"):
            running.api("POST", "/api/users", {"name": name, "role": "operator"})
        yield running


def bearer(up: FairleadUp, user: str) -> dict[str, str]:
    made = up.api("POST", "/api/tokens", {"user": user, "scopes": ["read", "write"]})
    return {"Authorization": f"Bearer {made['token']}"}


def said(up: FairleadUp, session: str, headers: dict[str, str], text: str) -> str:
    """What the session's log says after the run that this prompt begins."""
    last = max((each["seq"] for each in up.entries(session)), default=0)
    status, answer = up.call("POST", f"/api/sessions/{session}/prompt", {"text": text}, headers=headers)
    assert status == 202, answer

    def has_ended() -> bool:
        ends = [each for each in up.entries(session, after=last) if each["type"] == "run_end"]
        return any(answer["seq"] in each.get("seqs", []) for each in ends)

    eventually(has_ended, "the run ends")
    return json.dumps(up.entries(session, after=last))


def calling(tool: str, op: str, **arguments: object) -> str:
    return f"op={op} steps=1 tool={tool} args={json.dumps(arguments, separators=(',', ':'))}"


@pytest.mark.parametrize("owner", ["admin", "ann"])
def test_a_guest_reads_changes_and_widens_nothing_through_the_model_of_a_shared_session(
    up: FairleadUp, owner: str
) -> None:
    session, bob = f"shared-{owner}", bearer(up, "bob")
    of_owner = {} if owner == "admin" else bearer(up, owner)

    def owns(method: str, path: str, body: Any = None) -> Any:
        status, answer = up.call(method, path, body, headers=of_owner or None)
        assert status < 300, answer
        return answer

    owns("POST", "/api/sessions", {"id": session})
    owns("PATCH", f"/api/sessions/{session}", {"shared": {"access": "write", "users": ["bob"]}})
    at = f"/api/sessions/{session}"
    eventually(lambda: up.call("GET", at, headers=bob)[0] == 200, "bob is let in")
    job = {"schedule": {"kind": "every", "every": "30d"}, "payload": {"kind": "agentTurn", "message": SECRET}}
    name = owns("POST", "/api/cron/jobs", {"job": {**job, "name": SECRET}})["job"]["id"]

    assert SECRET not in said(up, session, bob, calling("schedule_list", "L1", include_disabled=True))
    for tool in ("schedule_runs", "schedule_run", "schedule_remove"):
        assert f"there is no job {name}" in said(up, session, bob, calling(tool, "X1", id=name)), tool
    assert owns("GET", f"/api/cron/jobs/{name}")["job"]["enabled"] is True

    said(up, session, bob, calling("schedule_add", "A1", name=f"of-{owner}", every="30d", prompt="look"))
    mine = [each for each in up.api("GET", "/api/cron/jobs")["jobs"] if each["name"] == f"of-{owner}"]
    assert [each["createdBy"]["owner"] for each in mine] == ["bob"], "what runs later is bob's, and he pays"
    assert mine[0]["id"] in said(up, session, bob, calling("schedule_list", "L2"))

    private = owns("POST", "/api/sessions", {})["id"]
    assert SECRET in said(up, private, of_owner, calling("schedule_list", "L3")), "its owner reaches it alone"
