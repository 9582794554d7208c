"""`fairlead top` shows what the API tells, once as plain text."""

from typing import Any

import pytest

from fairlead import access
from fairlead.client import UnreachableError
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

    def __init__(self) -> None:
        self.away: set[int] = set()  # numbers of the views that it does not answer
        self.views = 0

    def patiently(self, _: str, path: str, **__: Any) -> Any:
        if path == "/api/status":
            self.views += 1
            if self.views in self.away:
                raise UnreachableError("http://fairlead does not answer: \x1b[2Jgone")
        return ANSWERS[path.partition("?")[0]]


def _views(monkeypatch: pytest.MonkeyPatch, client: _Client, count: int) -> None:
    """Show this many, and press Ctrl-C."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == count:
            raise KeyboardInterrupt

    monkeypatch.setattr(access, "open_client", lambda url: client)
    monkeypatch.setattr("fairlead.commands.top.time.sleep", sleep)
    top.main([], standalone_mode=False)


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


def test_a_server_that_restarts_is_waited_for_and_one_that_was_never_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = _Client()
    client.away = {2}
    _views(monkeypatch, client, 3)
    shown = capsys.readouterr().out
    assert shown.count("approvals waiting: 1") == 2
    assert "does not answer: \\x1b[2Jgone\nasked again" in shown
    client = _Client()
    client.away = {1}
    with pytest.raises(UnreachableError):
        _views(monkeypatch, client, 1)


def test_a_view_fits_into_the_terminal_and_is_whole_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"status": "running", "updated_at": 0, "title": "東京" * 30}
    busy = [{"id": f"s{number}", **row} for number in range(20)]
    monkeypatch.setitem(ANSWERS, "/api/sessions", {"sessions": busy, "next": "5.s"})
    _views(monkeypatch, _Client(), 1)
    whole = capsys.readouterr().out.rstrip("\n").splitlines()
    assert "sessions at work or waiting: 20 (of the 20 that changed last)" in whole
    assert "  ... 5 more" in whole
    monkeypatch.setattr("fairlead.commands.top.sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")  # which is about colours
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("LINES", "15")
    _views(monkeypatch, _Client(), 1)
    cleared, screen, text = capsys.readouterr().out.partition("\x1b[2J\x1b[H")
    assert (cleared, screen != "") == ("", True)
    shown = text.splitlines()
    assert len(shown) == 14  # the cursor has the last line
    assert shown[-1] == f"... {len(whole) - 13} more lines (--once prints all)"
    assert shown[1] == whole[1][:50]
    (first,) = [line for line in shown if line.startswith("  s0 ")]
    assert sum(2 if letter in "東京" else 1 for letter in first) in (49, 50)
    monkeypatch.setenv("LINES", "200")
    monkeypatch.setenv("TERM", "dumb")
    _views(monkeypatch, _Client(), 1)
    shown = capsys.readouterr().out.splitlines()
    assert (len(shown), shown[1]) == (len(whole), whole[1][:50])
