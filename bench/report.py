"""Results as numbers with targets: a table for people, JSON for later."""

import json
import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass
class Row:
    """One measured number.

    Fields:
        target: what it should be at most, or with `at_least` at least; None where there is no promise.
    """

    name: str
    value: float | None
    unit: str
    target: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.target is None or self.value is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass
class Report:
    """All that one invocation measured."""

    about: dict[str, Any]
    rows: dict[str, list[Row]] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)

    def add(self, scenario: str, rows: list[Row], raw: dict[str, Any]) -> None:
        self.rows[scenario] = rows
        self.raw[scenario] = raw
        print(table(scenario, rows), flush=True)

    def save(self, path: Path | None = None) -> Path:
        """Into `bench/results/<date>.json`; scenarios of the same day that did not run now are kept."""
        path = path or RESULTS / f"{time.strftime('%Y-%m-%d', time.gmtime())}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        old = json.loads(path.read_text()) if path.exists() else {"scenarios": {}}
        for name, rows in self.rows.items():
            shown = [{**asdict(row), "met": row.met} for row in rows]
            old["scenarios"][name] = {"about": self.about, "rows": shown, "raw": self.raw[name]}
        path.write_text(json.dumps(old, indent=1) + "\n")
        return path


def table(scenario: str, rows: list[Row]) -> str:
    """Lines for a terminal."""
    lines = [f"\n{scenario}"]
    for row in rows:
        value = "-" if row.value is None else f"{row.value:,.{_digits(row.value)}f} {row.unit}"
        sign = ">=" if row.at_least else "<="
        target = "" if row.target is None else f"{sign} {row.target:g}"
        verdict = {None: "", True: "ok", False: "MISSED"}[row.met]
        lines.append(f"  {row.name:<46} {value:>18}   {target:<9} {verdict:<7} {row.note}")
    return "\n".join(lines)


def _digits(value: float) -> int:
    return 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2


def percentile(values: list[float], percent: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return round(ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)], 3)


def spread(values: list[float]) -> dict[str, float]:
    """What a list of measurements comes down to."""
    return {
        "n": len(values),
        "min": round(min(values), 3),
        "p50": percentile(values, 50),
        "p90": percentile(values, 90),
        "p99": percentile(values, 99),
        "max": round(max(values), 3),
    }
