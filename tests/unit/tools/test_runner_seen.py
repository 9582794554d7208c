"""What changed since a session read it is not replaced unseen."""

from typing import Any

from tests.support.outcomes import text_of
from tests.unit.tools.conftest import Client, Runner


def by(client: Client, session: str, call_id: str, tool: str, **arguments: object) -> dict[str, Any]:
    client.send(op="call", call_id=call_id, tool=tool, arguments=arguments, timeout_s=60, session=session)
    return client.outcome()


def test_file_that_changed_since_it_was_read_is_not_replaced(client: Client, runner: Runner) -> None:
    path = runner.workspace / "f"
    path.write_text("one\n")
    by(client, "s1", "a1", "read", path="f")
    path.write_text("two\n")
    runner.kill()
    client = runner.start()
    refused = by(client, "s1", "a2", "write", path="./f", content="mine\n")
    assert text_of(refused) == (
        './f: changed since you read it, so it was not replaced. Next: read {"path": "./f"}'
    )
    assert path.read_text() == "two\n"
    patch = "*** Begin Patch\n*** Delete File: f\n*** End Patch"
    assert "so it was not removed" in text_of(by(client, "s1", "a3", "apply_patch", patch=patch))
    edit = by(client, "s1", "a4", "edit", path="f", edits=[{"old_text": "two", "new_text": "2"}])
    assert "[f had changed since you read it]" in text_of(edit)
    assert by(client, "s1", "a5", "write", path="f", content="mine\n")["is_error"]
    by(client, "s1", "a6", "read", path="f")
    assert not by(client, "s1", "a7", "write", path="f", content="mine\n")["is_error"]
    assert not by(client, "s1", "a8", "write", path="f", content="mine again\n")["is_error"]
    assert path.read_text() == "mine again\n"


def test_each_session_is_told_of_what_it_did_not_see(client: Client, runner: Runner) -> None:
    path = runner.workspace / "f"
    path.write_text("one\n")
    by(client, "s1", "a1", "read", path="f", limit=1)
    assert not by(client, "s2", "a2", "write", path="f", content="two\n")["is_error"]  # it never read it
    assert by(client, "s1", "a3", "write", path="f", content="three\n")["is_error"]
    assert not by(client, "s2", "a4", "write", path="f", content="four\n")["is_error"]
    by(client, "s1", "a5", "read", path="f")
    path.unlink()
    assert not by(client, "s1", "a6", "write", path="f", content="new\n")["is_error"]
    assert path.read_text() == "new\n"
