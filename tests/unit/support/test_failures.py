"""What is written down of failures: each once, in one line, with the reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = """
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError("the port is taken")

def test_holds():
    pass

def test_counts():
    assert 1 == 2, "not two"

def test_leaves_something(broken):
    pass
"""


def failures(tmp_path: Path, *arguments: str) -> list[str]:
    """Run the tests of `tmp_path`; what was written down, without the folder."""
    noted = tmp_path / "failures"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.failures", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, f"--rootdir={tmp_path}", *arguments, str(tmp_path)],
        env=os.environ | {"FAIRLEAD_TEST_FAILURES": str(noted)},
        cwd=Path(__file__).parents[3],
        timeout=100,
    )
    assert run.returncode != 0
    return noted.read_text().splitlines()


@pytest.mark.process
@pytest.mark.parametrize(("workers", "how"), [("0", "by itself"), ("1", "beside others")])
def test_each_failure_is_one_line_with_its_reason(tmp_path: Path, workers: str, how: str) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    wrong, left = failures(tmp_path, "-n", workers)
    assert wrong == f"test_some.py::test_counts (call, 0 s, {how}): AssertionError: not two assert 1 == 2"
    assert left == f"test_some.py::test_leaves_something (teardown, 0 s, {how}): OSError: the port is taken"


@pytest.mark.process
def test_modules_that_cannot_be_imported_are_named_with_the_end_of_the_reason(tmp_path: Path) -> None:
    (tmp_path / "test_unreadable.py").write_text("import no_such_module\n")
    (line,) = failures(tmp_path)
    assert line.startswith("test_unreadable.py (collection, by itself): ")
    assert line.endswith("ModuleNotFoundError: No module named 'no_such_module'")
