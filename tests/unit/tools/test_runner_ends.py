"""A session is told once that a background process of its own has ended."""

from typing import Any

from tests.support.outcomes import text_of
from tests.support.waiting import eventually
from tests.unit.tools.conftest import Client, Runner


def by(client: Client, session: str, call_id: str, tool: str, **arguments: object) -> dict[str, Any]:
    client.send(op="call", call_id=call_id, tool=tool, arguments=arguments, timeout_s=60, session=session)
    return client.outcome()


def ended(client: Client) -> bool:
    (process,) = by(client, "", "list", "process", action="list")["details"]["processes"]
    return bool(process["state"] == "ended")


def test_the_next_result_tells_that_a_process_has_ended(client: Client, runner: Runner) -> None:
    command = "until [ -e go ]; do sleep 0.02; done; exit 3"
    name = by(client, "s1", "a1", "bash", command=command, background=True)["details"]["process"]
    assert "ended" not in text_of(by(client, "s1", "a2", "ls"))
    (runner.workspace / "go").touch()
    eventually(lambda: ended(client), "the process ends")
    assert "ended" not in text_of(by(client, "s2", "a3", "ls"))
    words = text_of(by(client, "s1", "a4", "bash", command="echo on"))
    assert words.startswith(f"on\n[{name} ended with exit code 3 after ")
    assert words.endswith(" s; see it with process]")
    assert text_of(by(client, "s1", "a5", "bash", command="echo on")) == "on\n"


def test_a_process_that_died_with_its_runner_is_told_and_one_that_was_polled_is_not(
    client: Client, runner: Runner
) -> None:
    name = by(client, "s1", "a1", "bash", command="sleep 300", background=True)["details"]["process"]
    runner.kill()
    client = runner.start()
    assert f"[{name} ended: its runner died" in text_of(by(client, "s1", "a2", "ls"))
    by(client, "s1", "a3", "process_control", action="remove", process=name)
    name = by(client, "s1", "a4", "bash", command="true", background=True)["details"]["process"]
    eventually(lambda: ended(client), "the process ends")
    by(client, "s1", "a5", "process", action="poll", process=name)
    assert name not in text_of(by(client, "s1", "a6", "ls"))
