"""The store of one server moves to three by a backup, and its sessions go on."""

import contextlib
import json
import time
from pathlib import Path

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.nats_cluster import NatsCluster
from tests.support.scripted_model import ModelProcess

pytestmark = pytest.mark.timeout(300)


def _up(home: Path, model: ModelProcess, *arguments: str) -> FairleadUp:
    environ = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "scripted"}
    sets = ["models.default=openai/scripted", "agents.main.mode=allow-all", "agents.main.sandbox.kind=local"]
    return FairleadUp(home, sets=sets, environ=environ, arguments=arguments)


def _wait_current(up: FairleadUp, wanted: int, timeout_s: float = 40.0) -> None:
    deadline = time.monotonic() + timeout_s
    while (ready := up.call("GET", "/readyz")[1])["replicas"]["current"] != wanted:
        assert time.monotonic() < deadline, ready
        time.sleep(0.2)


def test_a_store_moves_to_a_cluster_and_its_sessions_go_on(tmp_path: Path) -> None:
    file = tmp_path / "before.flbackup"
    with ModelProcess(tmp_path / "model.jsonl", fsync=False) as model:
        with _up(tmp_path / "alone", model) as alone:
            told = alone.ask('op=A1 steps=1 run="echo moved" answer="the word was kumquat"')
            assert told["outcome"] == "completed"
            session = told["session"]
            before = alone.entries(session)
            alone.api("POST", "/api/sessions", {"id": "empty"})
            made = alone.cli("backup", str(file))
            assert made.returncode == 0, made.stderr + made.stdout
        with NatsCluster(tmp_path / "cluster") as cluster:
            moved = _up(tmp_path / "home", model, "--nats", cluster.url, "--replicas", "3")
            put = moved.cli("restore", str(file), "--nats", cluster.url, "--replicas", "3", timeout_s=120)
            assert put.returncode == 0, put.stderr + put.stdout
            with contextlib.ExitStack() as running:
                running.callback(moved.__exit__)
                moved.start(timeout_s=90)
                assert moved.entries(session) == before
                assert any(each["id"] == "empty" for each in moved.api("GET", "/api/sessions")["sessions"])
                leader = cluster.leader_of("SESSIONS")
                assert leader is not None
                told = moved.ask('op=A2 steps=1 run="echo again" answer="it still is"', session=session)
                assert (told["outcome"], told["text"].strip()) == ("completed", "it still is")
                leader.kill()  # the copies are real: one may go
                told = moved.ask('op=A3 steps=1 run="echo third" answer="and now"', session=session)
                assert (told["outcome"], told["text"].strip()) == ("completed", "and now")
                _, ready = moved.call("GET", "/readyz")
                assert ready["replicas"] == {"current": 2, "wanted": 3}
                leader.launch()
                cluster.wait_leader()
                _wait_current(moved, 3)
    lines = [json.loads(line) for line in model.log.read_text().splitlines()]
    assert {"A1", "A2", "A3"} <= set([line for line in lines if "seen" in line][-1]["seen"])
