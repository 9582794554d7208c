"""The disk of the store is full: what is new is refused, what was accepted ends, and space alone mends it."""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import nats
import nats.js.errors
import pytest

from tests.support.fairlead_up import FairleadUp, HttpError
from tests.support.small_disk import SmallDisk
from tests.support.waiting import eventually

OPEN = 6  # sessions at work when the disk fills
STEPS = 12


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path_factory.mktemp("disk") / "store") as made:
        yield made


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands note that they ran: on another disk."""
    return tmp_path_factory.mktemp("ledger") / "ledger"


@pytest.fixture(scope="module")
def up(disk: SmallDisk) -> Iterator[FairleadUp]:
    sets = ["agents.main.mode=allow-all", "models.demo_delay_s=0"]
    with FairleadUp(disk.folder / "home", sets=sets) as started:
        yield started


def _cpu_s(up: FairleadUp) -> float:
    """Processor time that the services and the server used so far."""
    assert up.process
    pid = up.process.pid
    ticks = 0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _services(up: FairleadUp) -> dict[str, int]:
    return {name: pid for name, pid in up.pids().items() if name != "nats"}


def _work(ledger: Path, name: str) -> str:
    return "\n".join(f"run: echo {name}.{step} >> {ledger}; sleep 0.2" for step in range(STEPS))


def _check_all_ended(up: FairleadUp, sessions: list[str], ledger: Path) -> None:
    for session in sessions:
        ends = up.wait_idle(session, 60.0)
        assert [end["outcome"] for end in ends] == ["completed"], (session, ends)
    ran = Counter(ledger.read_text().split())
    for session in sessions:
        results = [
            each["message"]["outcome"]
            for each in up.entries(session)
            if each["type"] == "message" and each["message"]["role"] == "tool_result"
        ]
        assert len(results) == STEPS
        for step, result in enumerate(results):  # the journal of the commands is on this disk too
            assert result["status"] in ("ok", "error"), (session, result)
            assert ran[f"{session}.{step}"] == (result["status"] == "ok"), (session, step, result)


def _wait_for_refusal(up: FairleadUp, session: str, key: str) -> HttpError:
    deadline = time.monotonic() + 30.0
    number = 0
    while time.monotonic() < deadline:
        try:
            up.api("POST", f"/api/sessions/{session}/prompt", {"text": "x", "key": f"{key}-{number}"})
        except HttpError as error:
            if error.status == 507:
                return error
        number += 1
        time.sleep(0.05)
    raise AssertionError(f"never refused\n{up.tail()}")


async def _nats_refusal(up: FairleadUp) -> str:
    context = json.loads((up.home / "nats" / "context.json").read_text())
    client = await nats.connect(context["url"], nkeys_seed=context["nkey"])
    try:
        await client.jetstream().publish("fairlead.prompt.outside", b"hello", timeout=3)
    except nats.js.errors.APIError as error:
        return str(error.err_code)
    finally:
        await client.close()
    return "accepted"


def test_a_disk_filled_by_others_refuses_what_is_new_and_goes_on_by_space_alone(
    up: FairleadUp, disk: SmallDisk, ledger: Path
) -> None:
    sessions = [up.session() for _ in range(OPEN)]
    idle = up.session()
    for session in sessions:
        up.prompt(session, _work(ledger, session))
    eventually(lambda: ledger.exists() and ledger.read_text().count("\n") >= OPEN, "the commands begin")
    before = _services(up)

    disk.fill()
    refused = _wait_for_refusal(up, idle, "full")
    assert refused.body["error"]["code"] == "storage_full"
    assert "the store is full" in refused.body["error"]["message"]
    assert asyncio.run(_nats_refusal(up)) == "10023"
    said = up.cli("run", "--session", idle, "hello")
    assert said.returncode != 0
    assert "the store is full" in said.stderr
    status, missing = up.call("GET", "/readyz")
    assert status == 503
    assert "the disk is full" in missing["missing"]["store"]

    used_s, began = _cpu_s(up), time.monotonic()
    time.sleep(4.0)  # long enough for a loop that spins, and for leases and heartbeats to run out
    share = (_cpu_s(up) - used_s) / (time.monotonic() - began)
    assert share < 0.7, f"the services use {share:.2f} cores while they wait"
    assert _services(up) == before, up.tail()
    in_between = Counter(ledger.read_text().split())
    assert max(in_between.values(), default=1) == 1

    disk.free()
    up.wait_ready(30.0)
    _check_all_ended(up, sessions, ledger)
    assert up.ask("run: echo again", session=idle)["outcome"] == "completed"
    assert _services(up) == before, up.tail()
