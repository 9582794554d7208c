"""`fairlead approve` with an id that names nothing."""

from typing import Any

import pytest

from fairlead import access
from fairlead.commands.approve import approve
from fairlead_common.installation.errors import USAGE, CommandError


class _Client:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.bodies: list[Any] = []

    def patiently(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        self.sent.append(f"{method} {path}")
        self.bodies += [body] if body else []
        return {"approvals": [{"id": "a-1", "session": "s", "tool": "bash"}]}


def test_empty_id_decides_nothing_and_the_beginning_of_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Client()
    monkeypatch.setattr(access, "open_client", lambda url: client)
    for empty in ("", " "):
        with pytest.raises(CommandError) as refused:
            approve.main([empty], standalone_mode=False)
        assert refused.value.code == USAGE
    assert client.sent == []
    approve.main(["a-"], standalone_mode=False)
    assert client.sent == ["GET /api/approvals", "POST /api/approvals/a-1"]


@pytest.mark.parametrize(
    ("options", "body"),
    [
        (["--answer", "B"], {"answer": "B"}),
        (["--answer", "A", "--answer", "B"], {"answer": ["A", "B"]}),
        (["--deny", "--reason", "later"], {"decision": "deny", "reason": "later"}),
    ],
)
def test_a_question_is_answered_or_declined(
    monkeypatch: pytest.MonkeyPatch, options: list[str], body: dict[str, Any]
) -> None:
    client = _Client()
    monkeypatch.setattr(access, "open_client", lambda url: client)
    approve.main(["a-1", *options], standalone_mode=False)
    assert client.bodies == [body]


@pytest.mark.parametrize("arguments", [["--answer", "B"], ["a-1", "--deny", "--answer", "B"]])
def test_an_answer_needs_a_question_and_is_no_refusal(arguments: list[str]) -> None:
    with pytest.raises(CommandError) as refused:
        approve.main(arguments, standalone_mode=False)
    assert refused.value.code == USAGE


def test_the_list_says_what_may_only_be_denied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Waiting(_Client):
        def patiently(self, *_: Any, **__: Any) -> Any:
            budget = {"id": "b1", "session": "s", "tool": "budget", "kind": "budget", "why": "used up"}
            return {"approvals": [{**budget, "refusal": "it is not yours"}, {**budget, "id": "b2"}]}

    monkeypatch.setattr(access, "open_client", lambda url: Waiting())
    approve.main([], standalone_mode=False)
    first, second = capsys.readouterr().out.split("b2")
    assert "You may only deny it: it is not yours." in first
    assert "only deny" not in second
