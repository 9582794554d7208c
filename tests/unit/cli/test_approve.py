"""`fairlead approve` with an id that names nothing."""

from typing import Any

import pytest

from fairlead import access
from fairlead.commands.approve import approve
from fairlead_common.installation.errors import USAGE, CommandError


class _Client:
    def __init__(self) -> None:
        self.sent: list[str] = []

    def patiently(self, method: str, path: str, *_: Any, **__: Any) -> Any:
        self.sent.append(f"{method} {path}")
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
