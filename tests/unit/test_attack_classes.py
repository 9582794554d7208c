"""The table of attack classes is whole, and the tests that it names are there."""

import re
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "attack-classes.md").read_text("utf-8")
CLASSES: Final = {"GW": 30, "WS": 15, "SSE": 5, "AU": 18, "AP": 10}
ROWS: Final = re.findall(r"^\| ([A-Z]+)-(\d\d) \| (.+) \| (.+) \|$", PAGE, re.M)


def test_each_class_has_one_row() -> None:
    expected = [(name, f"{n:02}") for name, count in CLASSES.items() for n in range(1, count + 1)]
    assert [(name, number) for name, number, _, _ in ROWS] == expected


def test_each_row_names_tests_that_are_there() -> None:
    for name, number, attack, cell in ROWS:
        tests = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", cell)
        assert tests, f"{name}-{number} ({attack}) names no test"
        assert len(tests) == cell.count("`") // 2, f"{name}-{number}: {cell}"
        for path, test in tests:
            text = (ROOT / path).read_text("utf-8")
            assert re.search(rf"^(async )?def {test}\(", text, re.M), f"{name}-{number}: {path} has no {test}"
