"""`fairlead status`."""

import pytest
from click.testing import CliRunner

from fairlead.client import RequestRefusedError
from fairlead.commands.status import status
from tests.unit.cli.fake_gateway import fake_gateway


def test_what_an_executor_warns_of_stands_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_TOKEN", "test")
    warned = {"host": "here", "executor": "e1", "warnings": ["MCP server x: y is withheld", "and more"]}
    quiet = {"host": "here", "executor": "e2"}
    with fake_gateway() as gateway:
        gateway.answers = {"GET /api/status": [(200, {"services": [], "executors": [warned, quiet]})]}
        shown = CliRunner().invoke(status, ["--url", gateway.url])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    first = next(number for number, line in enumerate(lines) if "here/e1" in line)
    assert lines[first + 1 : first + 3] == ["    ! MCP server x: y is withheld", "    ! and more"]
    assert "here/e2" in lines[first + 3]


@pytest.mark.parametrize(
    ("refused", "shown"),
    [(401, "no good (check FAIRLEAD_TOKEN)"), (403, "no good")],
    ids=["a token that is none", "a right that is missing"],
)
def test_only_credentials_that_were_not_accepted_are_said_to_be_checked(refused: int, shown: str) -> None:
    assert str(RequestRefusedError(refused, "", "no good")) == shown
