"""An update without an outage: every process of a working Fairlead is restarted, one after the other."""

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.api import Api
from tests.chaos.driver import Driver, Load
from tests.chaos.evidence import load, of_type
from tests.chaos.oracle import judge
from tests.chaos.run import keep
from tests.chaos.stack import Shape, Stack

pytestmark = pytest.mark.timeout(240)

ORDER = ("agent-1", "agent-2", "tools-1", "tools-2", "scheduler", "webui", "gateway", "nats")
MOST_S = 60.0
LOAD = Load(
    sessions=4, asking_sessions=1, seconds=120.0, model_trouble=0.0, abort=0.0, steer=0.2, pause_s=0.5
)


def test_restarting_every_service_under_load_fails_no_run_and_shows_every_event(tmp_path: Path) -> None:
    with Stack(tmp_path / "run", Shape()) as stack:
        took_s = asyncio.run(_roll(stack))
    evidence = load(tmp_path / "run")
    ends = Counter(
        end["outcome"] for entries in evidence.entries.values() for end in of_type(entries, "run_end")
    )
    print(f"restarted {len(ORDER)} processes in {took_s:.1f} s under {len(evidence.inputs())} inputs: {ends}")
    assert judge(evidence) == []
    assert set(ends) <= {"completed", "waiting_approval"}
    assert ends["completed"] >= len(ORDER)
    assert all(said.state == "ok" for said in evidence.inputs())
    assert took_s < MOST_S


async def _roll(stack: Stack) -> float:
    """Seconds that it took to restart everything, each after the one before was ready again."""
    assert stack.up is not None
    async with Api(stack.up.base_url, stack.up.token) as api:
        driver = Driver(api, stack.folder, 1, LOAD)
        await driver.open()
        talking = asyncio.create_task(driver.talk())
        began = time.monotonic()
        for name in ORDER:
            await asyncio.to_thread(_restart, stack, name)
        took_s = time.monotonic() - began
        driver.hush()
        await talking
        await driver.quiesce()
        world = await driver.world()
    await keep(stack, world)
    return took_s


def _restart(stack: Stack, name: str) -> None:
    up = stack.up
    assert up is not None
    said = _times_ready(stack, name)
    up.kill(name, signal.SIGTERM)
    up.wait_restarted(name, timeout_s=30.0)
    deadline = time.monotonic() + 30.0
    while name != "nats" and _times_ready(stack, name) == said:
        assert time.monotonic() < deadline, f"{name} is not ready again\n{up.tail()}"
        time.sleep(0.05)
    up.wait_ready()


def _times_ready(stack: Stack, name: str) -> int:
    assert stack.up is not None
    path = stack.up.home / "logs" / f"{name}.log"
    return path.read_text(errors="replace").count('"service_ready"') if path.exists() else 0
