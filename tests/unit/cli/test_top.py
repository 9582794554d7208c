"""`fairlead top` shows what the API tells, once as plain text."""

from typing import Any

import pytest

from fairlead import access
from fairlead.commands.top import top

USAGE = {"replies": 3, "unpriced_replies": 1, "input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25}
RUN = {"outcome": "completed", "duration_ms": 1500, "turns": 2, "input_tokens": 7, "model": "openai/m"}
ANSWERS: dict[str, Any] = {
    "/api/status": {
        "services": [{"name": "fairlead-agent"}, {"name": "fairlead-agent"}, {"name": "fairlead-gateway"}],
        "executors": [{"host": "vm", "executor": "tools-1", "running": 2, "draining": True}],
        "store": {"state": "open", "free_bytes": 5 << 20},
    },
    "/api/sessions": {
        "sessions": [
            {"id": "s1", "status": "running", "updated_at": 0, "agent": "main", "title": "Count\x1b[2Jsheep"},
            {"id": "s2", "status": "idle", "updated_at": 0},
        ]
    },
    "/api/approvals": {"approvals": [{"session": "s3", "tool": "bash", "requested_at": 0}]},
    "/api/runs": {"runs": [RUN, {**RUN, "outcome": "failed", "duration_ms": 500}]},
    "/api/usage": {"total": USAGE},
}


class _Client:
    url = "http://fairlead"

    def patiently(self, _: str, path: str, **__: Any) -> Any:
        return ANSWERS[path.partition("?")[0]]


def test_one_view_has_all_that_matters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(access, "open_client", lambda url: _Client())
    top.main(["--once"], standalone_mode=False)
    shown = capsys.readouterr().out
    for words in (
        "agent 2, gateway 1",
        "$0.2500 + $?",
        "open, 5 MiB free",
        "within 15 min: 2, median 1.0 s",
        "completed 1, failed 1",
        "openai/m",
        "4 turns",
        "sessions at work or waiting: 1",
        "s1",
        "approvals waiting: 1",
        "vm/tools-1  2/8 calls  draining",
    ):
        assert words in shown
    assert "s2" not in shown
    assert "\x1b" not in shown


def test_long_ids_keep_the_columns_aligned_and_large_disks_are_in_gib(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = [{"id": "x" * length, "status": "running", "updated_at": 0, "title": "T"} for length in (3, 40)]
    approvals = [{"session": each["id"], "tool": "bash", "requested_at": 0} for each in busy]
    status = {**ANSWERS["/api/status"], "store": {"state": "open", "free_bytes": 58 << 30}}
    for path, answer in (
        ("/api/sessions", {"sessions": busy}),
        (
            "/api/approvals",
            {"approvals": [*approvals, {"session": "q", "tool": "ask_user", "kind": "question"}]},
        ),
        ("/api/runs", {"runs": [{**RUN, "unpriced_replies": 1}, {"outcome": "failed"}]}),
        ("/api/status", status),
    ):
        monkeypatch.setitem(ANSWERS, path, answer)
    monkeypatch.setattr(access, "open_client", lambda url: _Client())
    top.main(["--once"], standalone_mode=False)
    shown = capsys.readouterr().out.splitlines()
    assert len({line.index("running") for line in shown if "running" in line}) == 1
    assert len({line.index("bash") for line in shown if "bash" in line}) == 1
    assert any("58.0 GiB free" in line for line in shown)
    assert "approvals waiting: 2, questions waiting: 1" in shown
    assert sum("turns" in line for line in shown) == 1  # a run without a reply is of no model
    assert any("2 turns" in line and line.endswith("$0.0000 + $?") for line in shown)


def test_views_follow_until_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(access, "open_client", lambda url: _Client())
    monkeypatch.setattr("fairlead.commands.top.time.sleep", sleep)
    top.main(["--interval", "5"], standalone_mode=False)
    assert slept == [5.0, 5.0]
    assert capsys.readouterr().out.count("approvals waiting: 1") == 2
