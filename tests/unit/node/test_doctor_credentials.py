"""What `fairlead doctor` finds of stored credentials."""

from pathlib import Path
from typing import Any

import pytest

from fairlead_common.installation.home import Home
from fairlead_node.doctor import credentials
from fairlead_node.doctor.nats_facts import NatsFacts
from tests.support.doctor import look

pytestmark = pytest.mark.process  # of a free port

WORKS: dict[str, Any] = {"name": "main", "recipient": "agent", "readable": True, "check": {"state": "ok"}}


@pytest.mark.parametrize(
    ("known", "states", "words"),
    [
        (None, ["skipped"], "does not answer"),
        ([], ["skipped"], "none is stored"),
        ([WORKS, {**WORKS, "name": "other", "check": None}], ["ok"], "2 stored"),
        ([WORKS, {**WORKS, "readable": False}], ["problem"], "rotate main`"),
        (
            [{**WORKS, "readable": False, "recipient": "host:mill"}],
            ["problem"],
            "rotate main --for host:mill`",
        ),
        ([{**WORKS, "check": {"state": "problem", "text": "refused"}}], ["warning"], "refused"),
    ],
)
def test_credentials_that_do_not_work_are_named(
    tmp_path: Path, known: list[Any] | None, states: list[str], words: str
) -> None:
    found = credentials.stored(look(Home(tmp_path), facts=NatsFacts(credentials=known)))
    assert [finding.state for finding in found] == states
    assert words in f"{found[0].text} {found[0].advice}"
