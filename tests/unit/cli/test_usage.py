"""`fairlead usage` shows a table of what the API answers."""

from typing import Any

import pytest

from fairlead import access
from fairlead.budget_text import limit_text
from fairlead.commands.usage import usage

ROW = {
    "name": "main", "replies": 12, "unpriced_replies": 1, "input_tokens": 1000, "output_tokens": 50,
    "cache_read_tokens": 700, "cache_write_tokens": 0, "cost_usd": 1.25, "unknown_usd": 0.04,
}  # fmt: skip

BUDGET = {
    "of": "user", "name": "ann", "per": "day", "period": "2026-11-27", "limit_usd": 5, "extended_usd": 1,
    "spent_usd": 2.5, "unknown_usd": 0.5, "reserved_usd": 0.25, "left_usd": 3.25,
    "resets_at": 1_795_824_000_000,
}  # fmt: skip


class _Client:
    def __init__(self) -> None:
        self.paths: list[str] = []

    def patiently(self, _: str, path: str, **__: Any) -> Any:
        self.paths.append(path)
        if path == "/api/budgets":
            return {"budgets": [BUDGET]}
        return {"by": "agent", "rows": [ROW], "total": {**ROW, "name": ""}}


def test_usage_is_a_table_that_tells_what_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = _Client()
    monkeypatch.setattr(access, "open_client", lambda url: client)
    usage.main(["--by", "agent", "--from", "2026-11-01"], standalone_mode=False)
    assert client.paths == ["/api/usage?by=agent&from=2026-11-01", "/api/budgets"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["AGENT", "REPLIES", "INPUT", "CACHED", "OUTPUT", "COST"]
    assert lines[1].split() == [
        "main",
        "12",
        "1000",
        "700",
        "50",
        "$1.2500",
        "+",
        "up",
        "to",
        "$0.0400",
        "+",
        "$?",
    ]
    assert lines[2].startswith("total")
    assert lines[4].split() == ["budget", "limit", "spent", "reserved", "left", "resets", "(UTC)"]
    limits = "user ann, day  $5.00 + $1.00  $2.5000 (up to $0.5000 unknown)"
    assert lines[5] == f"{limits}   $0.2500  $3.2500  2026-11-28 00:00"


def test_a_limit_is_in_cents_where_it_is_a_number_of_cents() -> None:
    limits = [limit_text(usd) for usd in (5, 60.5, 0.1 + 0.2, 0.005, 0.0001)]
    assert limits == ["$5.00", "$60.50", "$0.30", "$0.0050", "$0.0001"]
