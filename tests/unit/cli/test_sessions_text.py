"""What `fairlead sessions show` prints of a session."""

from typing import Any

from click.testing import CliRunner

from fairlead.commands.sessions import sessions
from tests.unit.cli.fake_gateway import fake_gateway


def test_parts_of_a_message_are_lines_of_their_own() -> None:
    def message(role: str, *texts: str, **more: Any) -> dict[str, Any]:
        blocks = [{"type": "text", "text": text} for text in texts]
        return {"type": "message", "message": {"role": role, "content": blocks, **more}}

    entries = [message("user", "System: tea", "hello", ""), message("assistant", "Yes.", "Coming.")]
    with fake_gateway() as gateway:
        gateway.answers = {
            "GET /api/sessions/s1": [(200, {"id": "s1"})],
            "GET /api/sessions/s1/entries": [(200, {"entries": entries, "next": None})],
        }
        environ = {"FAIRLEAD_TOKEN": "t", "FAIRLEAD_URL": gateway.url}
        done = CliRunner().invoke(sessions, ["show", "s1"], env=environ)
    assert done.exit_code == 0, done.output
    assert "> System: tea\nhello\nYes.\nComing.\n" in done.stdout
