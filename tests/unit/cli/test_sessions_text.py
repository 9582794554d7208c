"""What `fairlead sessions show` prints of a session."""

from typing import Any

from click.testing import CliRunner

from fairlead.commands.sessions import sessions
from tests.unit.cli.fake_gateway import fake_gateway


def test_parts_of_a_message_are_lines_of_their_own_and_do_nothing_to_the_terminal() -> None:
    def message(role: str, *texts: str, **more: Any) -> dict[str, Any]:
        blocks = [{"type": "text", "text": text} for text in texts]
        return {"type": "message", "message": {"role": role, "content": blocks, **more}}

    hostile = "red\x1b]52;c;aGk=\x07 \u202edluow"
    entries = [
        message("user", "System: tea", "hello", ""),
        message("assistant", "Yes.", "Coming."),
        message("assistant", hostile),
    ]
    with fake_gateway() as gateway:
        gateway.answers = {
            "GET /api/sessions/s1": [(200, {"id": "s1"})],
            "GET /api/sessions/s1/entries": [(200, {"entries": entries, "next": None})],
        }
        environ = {"FAIRLEAD_TOKEN": "t", "FAIRLEAD_URL": gateway.url}
        done = CliRunner().invoke(sessions, ["show", "s1"], env=environ)
    assert done.exit_code == 0, done.output
    assert "> System: tea\nhello\nYes.\nComing.\n" in done.stdout
    assert done.stdout.endswith("red\\x1b]52;c;aGk=\\x07 \\x202edluow\n")


def test_system_lines_that_no_turn_has_read_yet_are_shown_last_and_deliveries_where_they_came() -> None:
    def custom(number: int, name: str, text: str) -> dict[str, Any]:
        data = {"text": text, "source": "cron:j"}
        return {"type": "custom", "id": f"e{number}", "ts": 0, "name": name, "data": data}

    said = {"role": "user", "content": [{"type": "text", "text": "System: [1970-01-01 00:00 UTC] milk\nhi"}]}
    entries = [
        custom(1, "system_event", "milk"),
        {"type": "message", "id": "e2", "parent_id": "e1", "items": ["e1"], "message": said},
        {**custom(3, "system_event", "tea"), "parent_id": "e2"},
        {**custom(4, "delivery", "The report."), "parent_id": "e3"},
    ]
    with fake_gateway() as gateway:
        gateway.answers = {
            "GET /api/sessions/s1": [(200, {"id": "s1"})],
            "GET /api/sessions/s1/entries": [(200, {"entries": entries, "next": None})],
        }
        environ = {"FAIRLEAD_TOKEN": "t", "FAIRLEAD_URL": gateway.url}
        done = CliRunner().invoke(sessions, ["show", "s1"], env=environ)
    assert done.exit_code == 0, done.output
    shown = done.stdout.splitlines()[-4:]
    assert shown == [
        "> System: [1970-01-01 00:00 UTC] milk",
        "hi",
        "[cron:j] The report.",
        "[waits for the next turn] System: [1970-01-01 00:00 UTC] tea",
    ]
