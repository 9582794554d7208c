"""What nats-server gets of the environment of `fairlead up`."""

from pathlib import Path

import psutil
import pytest

from fairlead_node.backup.own_server import server_over
from fairlead_node.nats_server.memory_limit import memory_limit
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


@pytest.mark.parametrize(
    ("indexes", "limit"),
    [
        ({}, "160MiB"),
        ({"SESSIONS": 100_000}, "160MiB"),
        # Of 100,000 sessions: with 176 MiB it collects no more often than with 256.
        ({"SESSIONS": 10_489_573, "KV_sessions": 4_600_576, "RUN_HISTORY": 5_989_065}, "179MiB"),
        ({"SESSIONS": 3 * 10_489_573, "KV_sessions": 3 * 4_600_576, "RUN_HISTORY": 3 * 5_989_065}, "440MiB"),
    ],
)
def test_a_server_is_given_the_memory_that_its_subjects_take(
    tmp_path: Path, indexes: dict[str, int], limit: str
) -> None:
    for stream, size in indexes.items():
        messages = tmp_path / "jetstream/FAIRLEAD/streams" / stream / "msgs"
        messages.mkdir(parents=True)
        (messages / "1.blk").write_bytes(b"what is stored does not count")
        with (messages / "index.db").open("wb") as index:
            index.truncate(size)
    assert memory_limit(tmp_path) == limit
    assert memory_limit(tmp_path, least_mib=256) == max("256MiB", limit)


@pytest.mark.process
@pytest.mark.parametrize(("size", "limit"), [(0, "256MiB"), (60 << 20, "438MiB")])
def test_a_server_for_a_moment_is_given_the_memory_of_its_store_too(
    tmp_path: Path, size: int, limit: str
) -> None:
    messages = tmp_path / "store/jetstream/OTHER/streams/SESSIONS/msgs"
    messages.mkdir(parents=True)
    with (messages / "index.db").open("wb") as index:
        index.truncate(size)
    with server_over(tmp_path / "store"):
        servers = [each for each in psutil.Process().children() if "nats-server" in each.name()]
        assert [each.environ()["GOMEMLIMIT"] for each in servers] == [limit]
