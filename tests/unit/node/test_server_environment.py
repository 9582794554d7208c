"""What nats-server gets of the environment of `fairlead up`."""

from fairlead_node.supervisor.child import environment_of_server


def test_limits_of_memory_and_processors_are_passed_on_and_keys_are_not() -> None:
    environ = {"PATH": "/bin", "OPENAI_API_KEY": "secret", "GOMAXPROCS": "1"}
    made = environment_of_server(environ, "256MiB")
    assert (made["GOMAXPROCS"], made["GOMEMLIMIT"]) == ("1", "256MiB")
    assert "OPENAI_API_KEY" not in made
    assert "GOMAXPROCS" not in environment_of_server({}, "256MiB")


def test_a_server_holds_half_as_much_garbage_as_it_uses_unless_the_environment_says_otherwise() -> None:
    assert environment_of_server({}, "256MiB")["GOGC"] == "50"
    assert environment_of_server({"GOGC": "100"}, "256MiB")["GOGC"] == "100"
