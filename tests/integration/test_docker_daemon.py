"""The Docker daemon itself: killed and restarted below running commands, and with users of its own."""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.tools_fixture import WAITING, Host
from tests.support import containers, engine
from tests.support.containers import PLAIN_IMAGE
from tests.support.engine import Engine
from tests.support.outcomes import text_of
from tests.support.processes import is_alive
from tests.support.waiting import until

_WHY_NOT = containers.missing() or engine.missing()
pytestmark = [pytest.mark.docker, pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)]

BOXED = {"sandbox": "docker", "scope": "chat"}
USER = 4321
FIRST_REMAPPED = 100_000


@pytest.fixture(scope="module")
def keeping() -> Iterator[Engine]:
    """One for all that leave it alive: it takes seconds to start."""
    with _folder() as folder, Engine(folder, "--live-restore") as started:
        yield started


@pytest.fixture
def folder() -> Iterator[Path]:
    with _folder() as made:
        yield made


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="fairlead-engine-"))
    made.chmod(0o711)  # the users of containers pass through
    yield made / "own"
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
async def boxed(host: Host) -> AsyncIterator[Host]:
    host.workspace.mkdir()
    os.chown(host.workspace, USER, USER)
    settings = {"sandboxes.docker.image": PLAIN_IMAGE, "sandboxes.docker.warm": 0}
    host.environ["FAIRLEAD_OVERRIDES"] = json.dumps(settings)
    yield host
    for process in host.processes.values():
        process.kill()
        process.wait(timeout=10)


def _boxes(engine: Engine, host: Host) -> int:
    label = f"fairlead.identity={containers.identity_of(host.state)}"
    return len(engine.client().containers(all=True, filters={"label": [label]}))


def _inside(engine: Engine) -> list[int]:
    client = engine.client()
    return [int(row[1]) for each in client.containers() for row in client.top(each["Id"])["Processes"]]


@pytest.fixture
def ending(folder: Path) -> Iterator[Engine]:
    with Engine(folder) as started:
        yield started


def _owner(pid: int) -> int | None:
    with contextlib.suppress(FileNotFoundError):  # it was a sleep that is over
        return Path(f"/proc/{pid}").stat().st_uid
    return None


@pytest.fixture
def remapped(folder: Path) -> Iterator[Engine]:
    if "dockremap:" not in Path("/etc/subuid").read_text():
        pytest.skip("the engine would have to make a user `dockremap` on this machine")
    with Engine(folder, "--userns-remap=default") as started:
        yield started


async def test_command_goes_on_and_reports_while_the_daemon_is_dead(boxed: Host, keeping: Engine) -> None:
    """With live-restore containers outlive the daemon, and the channel does not lead through it."""
    await boxed.started(DOCKER_HOST=keeping.url)
    call = await boxed.ask("bash", command=WAITING, **BOXED)
    await boxed.file("ran")
    await asyncio.to_thread(keeping.kill)
    (boxed.workspace / "go").touch()
    assert text_of(await boxed.result(call)) == "end\n"
    await asyncio.to_thread(keeping.start)
    again = await boxed.result(await boxed.ask("bash", command="echo on", **BOXED))
    assert text_of(again) == "on\n"
    assert _boxes(keeping, boxed) == 1
    await boxed.settled()
    assert boxed.lines("ran") == ["x"]


async def test_restart_that_ends_containers_says_so_and_what_waited_runs(boxed: Host, ending: Engine) -> None:
    await boxed.started(DOCKER_HOST=ending.url)
    call = await boxed.ask("bash", command="echo x >> ran; setsid sleep 300 & sleep 301", **BOXED)
    await boxed.file("ran")
    await until(lambda: len(_inside(ending)) >= 5, "all of it runs")
    inside = _inside(ending)
    await asyncio.to_thread(ending.stop)
    assert not [pid for pid in inside if is_alive(pid)]
    meanwhile = await boxed.ask("bash", command="echo y >> ran", **BOXED)
    await until(lambda: meanwhile.call_id in boxed.log("e1"), "the executor tries in vain")
    await asyncio.to_thread(ending.start)
    outcome = await boxed.result(call)
    assert outcome.status == "cancelled"
    assert "the sandbox was shut down" in text_of(outcome)
    assert (await boxed.result(meanwhile)).status == "ok"
    await boxed.settled()
    assert boxed.lines("ran") == ["x", "y"]


async def test_killed_daemon_and_executor_bring_the_result_once(boxed: Host, keeping: Engine) -> None:
    await boxed.started("e1", DOCKER_HOST=keeping.url)
    call = await boxed.ask("bash", command=WAITING, **BOXED)
    await boxed.file("ran")
    boxed.kill("e1")
    await asyncio.to_thread(keeping.kill)
    (boxed.workspace / "go").touch()
    await boxed.started("e2", DOCKER_HOST=keeping.url)
    await asyncio.to_thread(keeping.start)
    assert text_of(await boxed.result(call)) == "end\n"
    await boxed.settled()
    assert boxed.lines("ran") == ["x"]


async def test_root_of_the_container_is_nobody_outside(boxed: Host, remapped: Engine) -> None:
    boxed.workspace.chmod(0o777)  # what remapped users write in must be open to them
    await boxed.started(DOCKER_HOST=remapped.url)
    call = await boxed.ask("bash", command="id -u; " + WAITING, **BOXED)
    await boxed.file("ran")
    owners = {uid for pid in _inside(remapped) if (uid := _owner(pid)) is not None}
    assert len(owners) == 2  # the runner's and the command's
    assert min(owners) >= FIRST_REMAPPED
    (boxed.workspace / "go").touch()
    assert text_of(await boxed.result(call)) == f"{USER}\nend\n"
    assert (boxed.workspace / "ran").stat().st_uid == max(owners)
