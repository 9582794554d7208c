"""Fixtures that several of these tests use."""

from pathlib import Path

import pytest

from fairlead_common.installation.home import Home


@pytest.fixture
def place(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    return made
