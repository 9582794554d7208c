"""A process has no descriptor left: it says so, does not spin, and goes on when some are free again."""

import contextlib
import http.client
import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.usage import cpu_s, leave_files, limit_files

MANY = 40


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadUp]:
    folder = tmp_path_factory.mktemp("files")
    sets = ["agents.main.mode=allow-all", "models.demo_delay_s=0"]
    with FairleadUp(folder / "home", sets=sets) as started:
        started.ask("run: true")  # what is opened by the first call is open from here on
        yield started


@contextlib.contextmanager
def _limited(pid: int, *, spare: int) -> Iterator[None]:
    """Let the process open so many more."""
    usual, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    leave_files(pid, spare)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            limit_files(pid, usual)


@contextlib.contextmanager
def _connections(port: int, number: int) -> Iterator[None]:
    """Clients that say nothing; those that are refused do not count."""
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            client = stack.enter_context(socket.socket())
            client.settimeout(1.0)
            with contextlib.suppress(OSError):
                client.connect(("127.0.0.1", port))
        yield


def _share_of_cpu(pid: int, for_s: float = 2.0) -> float:
    used_s, began = cpu_s(pid), time.monotonic()
    time.sleep(for_s)  # what is measured is that nothing happens
    return (cpu_s(pid) - used_s) / (time.monotonic() - began)


def test_a_gateway_without_descriptors_turns_clients_away_and_serves_again(up: FairleadUp) -> None:
    pid = up.pids()["gateway"]
    with _limited(pid, spare=8), _connections(up.port, MANY):
        with pytest.raises((OSError, http.client.HTTPException)):
            up.call("GET", "/healthz", timeout_s=3.0)
        assert _share_of_cpu(pid) < 0.5
    assert up.ask("run: echo served")["outcome"] == "completed"
    assert up.pids()["gateway"] == pid


def test_a_nats_server_without_descriptors_loses_nothing(up: FairleadUp) -> None:
    pid = up.pids()["nats"]
    session = up.session()
    with _limited(pid, spare=8), _connections(_nats_port(up), MANY):
        up.prompt(session, "run: echo accepted")
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it may be started again
            assert _share_of_cpu(pid) < 0.7
    (end,) = up.wait_idle(session, 60.0)
    assert end["outcome"] == "completed"
    assert "too many open files" in (up.home / "logs" / "nats.log").read_text()


def _nats_port(up: FairleadUp) -> int:
    context = json.loads((up.home / "nats" / "context.json").read_text())
    return int(str(context["url"]).rpartition(":")[2])


@pytest.mark.parametrize(("who", "spare"), [("executor", 0), ("runner", 6)])
def test_commands_without_descriptors_end_and_run_at_most_once(
    up: FairleadUp, tmp_path: Path, who: str, spare: int
) -> None:
    pid = up.pids()["tools"] if who == "executor" else _runner(up)
    ledger = tmp_path / "ledger"
    sessions = [up.session() for _ in range(12)]
    with _limited(pid, spare=spare):
        for session in sessions:
            up.prompt(session, f"run: echo {session} >> {ledger}; sleep 0.3")
        assert _share_of_cpu(pid, 1.0) < 0.8
        ends = {session: up.wait_idle(session, 60.0) for session in sessions}
    assert {end["outcome"] for each in ends.values() for end in each} == {"completed"}
    ran = ledger.read_text().split() if ledger.exists() else []
    statuses = {session: _status(up, session) for session in sessions}
    assert set(statuses.values()) <= {"ok", "error"}
    assert "error" in statuses.values()
    for session, status in statuses.items():
        assert ran.count(session) == (status == "ok"), (session, status)
    assert up.ask("run: echo well")["outcome"] == "completed"
    os.kill(pid, 0)  # it is still the same


def test_a_runner_without_descriptors_waits_for_one(up: FairleadUp) -> None:
    pid = _runner(up)
    (lock,) = (up.home / "tools").glob("*/runners/*/lock")
    folder = os.open(lock.parent, os.O_PATH)  # a socket's name has to be short
    try:
        with socket.socket(socket.AF_UNIX) as client, _limited(pid, spare=0):
            client.connect(f"/proc/self/fd/{folder}/sock")
            assert _share_of_cpu(pid, 1.0) < 0.05
    finally:
        os.close(folder)
    assert up.ask("run: echo well")["outcome"] == "completed"


def _status(up: FairleadUp, session: str) -> str:
    (found,) = (
        each["message"]["outcome"]
        for each in up.entries(session)
        if each["type"] == "message" and each["message"]["role"] == "tool_result"
    )
    if found["status"] == "error":
        assert "Too many open files" in str(found["content"])
    return str(found["status"])


def _runner(up: FairleadUp) -> int:
    (lock,) = (up.home / "tools").glob("*/runners/*/lock")
    return int(lock.read_text())
