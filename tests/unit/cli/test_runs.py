"""`fairlead runs` pages through what the API answers."""

from typing import Any

import pytest

from fairlead import access
from fairlead.commands.runs import runs

RUN = {
    "run_id": "r1", "session": "s1", "outcome": "failed", "error_code": "model_auth", "agent": "main",
    "model": "openai/m", "user": "ann", "started_at": 1, "ended_at": 1_790_000_000_000, "duration_ms": 2500,
    "turns": 3, "tools": {"ok": 2, "denied": 1}, "cost_usd": 0.5, "unpriced_replies": 1,
}  # fmt: skip


class _Client:
    def __init__(self) -> None:
        self.paths: list[str] = []

    def patiently(self, _: str, path: str, **__: Any) -> Any:
        self.paths.append(path)
        return {
            "runs": [RUN if len(self.paths) == 1 else {**RUN, "turns": 1}],
            "next": 7 if len(self.paths) == 1 else None,
        }


def test_runs_are_lines_and_pages_are_followed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = _Client()
    monkeypatch.setattr(access, "open_client", lambda url: client)
    runs.main(["--agent", "main", "--limit", "600"], standalone_mode=False)
    assert client.paths == ["/api/runs?agent=main&limit=500", "/api/runs?agent=main&limit=500&before=7"]
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "ENDED",
        "OUTCOME",
        "TOOK",
        "TURNS",
        "CALLS",
        "COST",
        "AGENT",
        "MODEL",
        "USER",
        "SESSION",
    ]
    assert "  2.5 s      1  denied:1" in second
    for words in ("failed (model_auth)", "2.5 s      3  ", "denied:1 ok:2", "$0.5000+$?", "ann", "s1"):
        assert words in first
