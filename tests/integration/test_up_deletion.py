"""Deleted sessions against real processes: everything is killed, and a worker sleeps through a deletion."""

import contextlib
import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.processes import hold
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(240)


def _listed(up: FairleadUp) -> set[str]:
    return {session["id"] for session in up.api("GET", "/api/sessions")["sessions"]}


def _kill_everything(up: FairleadUp) -> None:
    """kill -9 of all processes, the supervisor first, so that it starts none again."""
    assert up.process is not None
    pids = up.pids().values()
    up.process.kill()
    up.process.wait(timeout=10)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_deleted_sessions_stay_deleted_when_everything_is_killed_a_moment_later(tmp_path: Path) -> None:
    up = FairleadUp(tmp_path / "home", sets=["models.default=demo"])
    with up:
        kept = up.ask("hello")["session"]
        for number in range(3):
            gone = f"gone-{number}"
            up.session(id=gone, title="one")
            up.prompt(gone, "hello")
            up.wait_idle(gone)
            up.api("PATCH", f"/api/sessions/{gone}", {"title": "two"})
            eventually(partial(_has_title, up, gone, "two"), "its new title is listed")
            assert up.call("DELETE", f"/api/sessions/{gone}")[0] == 204
            time.sleep(0.2)
            _kill_everything(up)
            up.start(60.0)
            for path in ("", "/entries"):
                assert up.call("GET", f"/api/sessions/{gone}{path}")[0] == 404
            assert up.call("DELETE", f"/api/sessions/{gone}")[0] == 404
            assert _listed(up) == {kept}
        up.session(id="gone-0", title="again")
        said = up.prompt("gone-0", "hello again")["seq"]
        assert eventually(lambda: _ends(up, "gone-0"), "the new session answers") == [("completed", [said])]
        assert _listed(up) == {kept, "gone-0"}


def test_a_prompt_right_after_the_notice_survives_when_everything_is_killed(tmp_path: Path) -> None:
    up = FairleadUp(tmp_path / "home", sets=["models.default=demo"])
    with up, ThreadPoolExecutor(1) as pool:
        up.session(id="main", title="first")
        up.prompt("main", "hello")
        up.wait_idle("main")
        hold(up.pids()["agent"])  # so that the notice waits
        deleting = pool.submit(up.call, "DELETE", "/api/sessions/main")
        time.sleep(1.0)
        said = up.prompt("main", "hello again")["seq"]
        _kill_everything(up)
        with contextlib.suppress(OSError, http.client.HTTPException):
            deleting.result()
        up.start(60.0)
        # Until the deletion is carried out, the log is still that of the session before.
        eventually(lambda: _ends(up, "main") == [("completed", [said])], "the next session alone answers")
        assert up.api("GET", "/api/sessions/main")["title"] == "hello again"


def _ends(up: FairleadUp, session: str) -> list[tuple[str, list[int]]]:
    """Outcome and prompts of all runs that ended."""
    ends = [entry for entry in up.entries(session) if entry["type"] == "run_end"]
    return [(entry["outcome"], entry["seqs"]) for entry in ends]


def _has_title(up: FairleadUp, session: str, title: str) -> bool:
    titles = {each["id"]: each["title"] for each in up.api("GET", "/api/sessions")["sessions"]}
    return bool(titles.get(session) == title)


@pytest.fixture
def points(tmp_path: Path) -> Iterator[Path]:
    """The folder where fail-points are armed; whoever stopped there goes on at the end."""
    folder = tmp_path / "points"
    folder.mkdir()
    yield folder
    for landed in _landed(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(landed["pid"], signal.SIGCONT)


def _landed(folder: Path) -> list[dict[str, Any]]:
    path = folder / "landed"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("point", ["agent.delete_list.before", "agent.delete.before"])
def test_a_worker_that_sleeps_in_a_deletion_takes_nothing_from_the_next_session_of_this_id(
    tmp_path: Path, points: Path, point: str
) -> None:
    up = FairleadUp(
        tmp_path / "home",
        sets=["models.default=demo"],
        workers="agent=2",
        environ={
            "FAIRLEAD_TEST": "1",
            "FAIRLEAD_FAILPOINTS": str(points),
            "FAIRLEAD_AGENT_LEASE_S": "2",
        },
    )
    with up:
        up.session(id="main", title="first")
        up.prompt("main", "hello")
        up.wait_idle("main")
        (points / point).write_text("stop 1")
        status = up.call("DELETE", "/api/sessions/main", timeout_s=30.0)[0]
        (stopped,) = eventually(lambda: _landed(points), "a worker stops in the deletion")
        assert status in (202, 204)
        eventually(lambda: up.call("GET", "/api/sessions/main")[0] == 404, "the other worker finishes")
        up.session(id="main", title="second")
        said = up.prompt("main", "hello again")["seq"]
        os.kill(stopped["pid"], signal.SIGCONT)
        eventually(lambda: _ends(up, "main"), "the new session answers")
        time.sleep(3.0)  # the worker is awake, and does whatever it would
        assert _ends(up, "main") == [("completed", [said])]
        assert up.entries("main")[0].get("parent_id") is None
        assert up.api("GET", "/api/sessions/main")["title"] == "second"
        assert _listed(up) == {"main"}
        logs = "".join(path.read_text(errors="replace") for path in (up.home / "logs").glob("agent*"))
        assert logs.count("session_deleted") == 1
        assert up.call("DELETE", "/api/sessions/main")[0] == 204
        assert _listed(up) == set()
