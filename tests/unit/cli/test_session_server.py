"""Requests about a session: whatever an editor names as its id, they concern that session alone."""

from typing import Any, cast

from fairlead.client import GatewayClient
from fairlead.session_server import GatewaySessions


class _Client:
    def __init__(self) -> None:
        self.paths: list[str] = []

    def patiently(self, method: str, path: str, *_: object, **__: object) -> dict[str, Any]:
        self.paths.append(path)
        return {"seq": 1, "approvals": []}

    request = patiently


def test_no_id_leads_to_another_address() -> None:
    client = _Client()
    sessions = GatewaySessions(cast("GatewayClient", client))
    bad = "../users/ann?x#y"
    sessions.summary(bad)
    sessions.change(bad, {})
    sessions.prompt(bad, {"key": "k"})
    sessions.discard(bad)
    sessions.abort(bad, "", patience_s=1)
    sessions.approvals(bad)
    sessions.decide("s", bad, {})
    escaped = "..%2Fusers%2Fann%3Fx%23y"
    assert len(client.paths) == 7
    assert [path for path in client.paths if escaped not in path or path.count("/") > 4] == []
