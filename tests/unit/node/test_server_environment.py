"""What nats-server gets of the environment of `fairlead up`."""

import pytest

from fairlead_node.supervisor.child import environment_of_server


@pytest.mark.parametrize(
    ("processors", "own", "given"),
    [(2, None, "1"), (1, None, "1"), (2, "2", "2"), (8, None, None), (8, "4", "4")],
)
def test_on_a_small_machine_it_gets_one_processor_unless_the_variable_says_more(
    monkeypatch: pytest.MonkeyPatch, processors: int, own: str | None, given: str | None
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    environ = {"PATH": "/bin", "OPENAI_API_KEY": "secret"} | ({"GOMAXPROCS": own} if own else {})
    made = environment_of_server(environ, "256MiB")
    assert made.get("GOMAXPROCS") == given
    assert made["GOMEMLIMIT"] == "256MiB"
    assert "OPENAI_API_KEY" not in made
