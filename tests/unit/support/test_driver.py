"""The chaos client against a gateway that keeps its promises: what it wrote down is a clean run."""

import json
from pathlib import Path

import pytest

from tests.chaos.api import Api
from tests.chaos.driver import Driver, Load
from tests.chaos.evidence import load
from tests.chaos.measure import measure
from tests.chaos.oracle import judge
from tests.unit.support.fake_gateway import FakeGateway

LOAD = Load(sessions=3, asking_sessions=1, seconds=1.5, pause_s=0.05, abort=0.0)


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """The evidence of one run against a gateway that sometimes says 503 after it has obeyed."""
    gateway = FakeGateway(tmp_path, refuse_every=7)
    url = await gateway.start()
    async with Api(url, "token") as api:
        driver = Driver(api, tmp_path, seed=1, load=LOAD)
        await driver.open()
        await driver.talk()
        await driver.quiesce(10)
        world = await driver.world()
    await gateway.stop()
    (tmp_path / "world.json").write_text(json.dumps({**world, "leftovers": []}))
    return tmp_path


async def test_evidence_of_a_faithful_gateway_is_clean(folder: Path) -> None:
    evidence = load(folder)
    assert judge(evidence) == []
    numbers = measure(evidence)
    assert numbers.accepted == numbers.prompts > 5
    assert numbers.ops > 5
    assert any(record.get("action") == "approval" for record in evidence.client)
    assert {said.kind for said in evidence.inputs()} == {"prompt", "followup", "steer"}


async def test_lost_log_entry_shows(folder: Path) -> None:
    world = json.loads((folder / "world.json").read_text())
    for entries in world["entries"].values():
        entries[:] = [entry for entry in entries if entry["type"] != "run_end"]
    (folder / "world.json").write_text(json.dumps(world))
    assert {"LOST", "STUCK", "GAP"} <= {violation.kind for violation in judge(load(folder))}
