"""The facts of a call: each computed once, and what is judged is what is shown and sent."""

import msgspec
import pytest

from fairlead_agent.policy import call_facts
from fairlead_agent.policy.call_facts import CallFacts
from fairlead_common.policy.rules import Subject, subject
from fairlead_common.protocol.approval_hash import shown_hash
from fairlead_common.protocol.messages import ToolCall, ToolSpec

BASH = ToolSpec(name="bash", description="", parameters={}, group="runtime")
WRITE = ToolSpec(name="write", description="", parameters={}, group="fs")
GREP = ToolSpec(name="grep", description="", parameters={}, group="fs", read_only=True, flags=["private"])


def facts(
    spec: ToolSpec, arguments: dict[str, object], *, root: str = "", networked: bool = True
) -> CallFacts:
    call = ToolCall(call_id="c", session="s", name=spec.name, arguments=arguments, workspace="/w", token="t")
    return CallFacts(spec, call, "h", root=root, networked=networked)


def test_the_call_is_read_once_however_often_its_facts_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def counted(spec: ToolSpec, arguments: dict[str, object], root: str = "") -> Subject:
        read.append(spec.name)
        return subject(spec, arguments, root)

    monkeypatch.setattr(call_facts, "subject", counted)
    call = facts(BASH, {"command": "curl https://example.org > .env"})
    for _ in range(2):
        assert call.effects == ["external", "private", "untrusted"]
        assert call.names_secret
        assert call.shell is not None
        assert call.approval_keys == []
    assert read == ["bash"]


def test_the_hash_is_that_of_the_request_and_host() -> None:
    call = facts(WRITE, {"path": "a"})
    assert call.shown_hash == shown_hash(call.request, "h")
    elsewhere = CallFacts(WRITE, call.request, "i")
    assert elsewhere.shown_hash != call.shown_hash
    changed = msgspec.structs.replace(call.request, arguments={"path": "b"})
    assert CallFacts(WRITE, changed, "h").shown_hash != call.shown_hash


def test_paths_are_those_of_the_workspace_however_they_are_spelled() -> None:
    call = facts(WRITE, {"path": "/srv/src/../a.py", "content": ""}, root="/srv")
    assert (call.given_paths, call.paths) == (("/srv/src/../a.py",), ("a.py",))
    assert facts(GREP, {"pattern": "x", "glob": "*.pem"}).given_paths[-1] == "*.pem"


@pytest.mark.parametrize(
    ("spec", "arguments", "expected"),
    [
        (BASH, {"command": "cat .env"}, True),
        (BASH, {"command": "echo x > .ssh/id_rsa"}, True),
        (BASH, {"command": "ls"}, False),
        (GREP, {"pattern": "x", "path": ".env"}, True),
        (GREP, {"pattern": ".env", "path": "src"}, False),
    ],
)
def test_a_call_that_names_a_secret_is_told_from_one_that_does_not(
    spec: ToolSpec, arguments: dict[str, object], expected: bool
) -> None:
    assert facts(spec, arguments).names_secret is expected


def test_only_commands_take_over_the_network_of_their_sandbox() -> None:
    assert facts(BASH, {"command": "ls"}, networked=False).effects == ["private"]
    assert facts(BASH, {"command": "ls"}).effects == ["external", "private"]
    assert facts(WRITE, {"path": "a"}).effects == []


def test_a_lasting_grant_is_offered_only_where_it_has_keys() -> None:
    once = facts(BASH, {"command": "make test"})
    assert (once.approval_keys, once.approval_offers) == ([], {})
    lasting = facts(BASH, {"command": "git status"})
    assert len(lasting.approval_keys) == 1
    assert set(lasting.approval_offers) == {"session", "always"}
