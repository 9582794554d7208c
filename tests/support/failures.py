"""What failed, in one line each, for the end of a long run: CI may keep no more of it than that.

`scripts/test` names the file (`FAIRLEAD_TEST_FAILURES`) and shows it last; later runs add to it.
"""

import os
from pathlib import Path
from typing import Final

import pytest

FILE: Final = "FAIRLEAD_TEST_FAILURES"
_LONGEST: Final = 300  # characters of a reason


class Failures:
    """Adds a line to a file for each test, fixture or module that fails, at once: a run may be cut off."""

    def __init__(self, file: Path, workers: int) -> None:
        self._file = file
        self._beside = "beside others" if workers else "by itself"

    def _add(self, nodeid: str, when: str, longrepr: object) -> None:
        crash = getattr(longrepr, "reprcrash", None)
        words = " ".join(str(longrepr if crash is None else crash.message).split())
        reason = words[-_LONGEST:] if crash is None else words[:_LONGEST]
        with self._file.open("a") as out:
            out.write(f"{nodeid} ({when}, {self._beside}): {reason}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._add(report.nodeid, f"{report.when}, {report.duration:.0f} s", report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._add(report.nodeid, "collection", report.longrepr)


def pytest_configure(config: pytest.Config) -> None:
    """In the process that hears of all tests, where a file is named."""
    if (
        file := os.environ.pop(FILE, None)
    ) is not None:  # neither for workers nor for a pytest that a test starts
        config.pluginmanager.register(Failures(Path(file), getattr(config.option, "numprocesses", None) or 0))
