"""Memory: what is printed without end grows no process; what is killed for its memory loses nothing."""

import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead_common.bus import Bus
from tests.integration.tools_fixture import Host
from tests.support.fairlead_up import FairleadUp
from tests.support.nats_server import NatsServer
from tests.support.outcomes import text_of
from tests.support.usage import peak_rss_mib
from tests.support.waiting import eventually

GROWTH_MIB = 48  # that an executor and a runner may need for an output, however long it is
SHOWN_BYTES = 64 << 10
PICTURE_BYTES = 2 << 20


@pytest.fixture
async def host(tmp_path: Path, bus: Bus, nats_server: NatsServer) -> AsyncIterator[Host]:
    made = Host(tmp_path / "machine", bus, nats_server)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("command", "printed_bytes"),
    [("yes | head -c 2G", 2 << 30), ("head -c 64M /dev/zero | tr '\\0' x", 64 << 20)],
    ids=["2 GiB of lines", "64 MiB in one line"],
)
async def test_an_output_without_end_grows_neither_executor_nor_runner(
    host: Host, command: str, printed_bytes: int
) -> None:
    executor = (await host.started()).pid
    assert (await host.run("bash", command="echo warm")).status == "ok"
    (runner,) = host.runners()
    before = {pid: peak_rss_mib(pid) for pid in (executor, runner)}
    call = await host.ask("bash", command=command, timeout_s=180.0)
    outcome = await host.result(call, within_s=200.0)
    assert (outcome.status, outcome.output_bytes) == ("ok", printed_bytes), outcome
    assert "bytes left out here" in text_of(outcome)
    assert len(text_of(outcome)) < SHOWN_BYTES
    for pid, mib in before.items():
        grown_mib = peak_rss_mib(pid) - mib
        print("runner" if pid == runner else "executor", f"{mib:.0f} MiB, grown by {grown_mib:.1f} MiB")
        assert grown_mib < GROWTH_MIB, "runner" if pid == runner else "executor"


class _Cgroup:
    """A group of processes that may have `limit_bytes` of memory more than they have."""

    def __init__(self, name: str, limit_bytes: int) -> None:
        self._folder = Path("/sys/fs/cgroup/memory") / name
        try:
            self._folder.mkdir()
            (self._folder / "memory.limit_in_bytes").write_text(str(limit_bytes))
        except OSError as error:
            pytest.skip(f"no memory cgroup can be made here: {error}")

    def add(self, pid: int) -> None:
        (self._folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        for pid in (self._folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self._folder.parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            self._folder.rmdir()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FairleadUp]:
    folder = tmp_path_factory.mktemp("memory")
    sets = ["agents.main.mode=allow-all", "models.demo_delay_s=0"]
    with FairleadUp(folder / "home", sets=sets) as started:
        yield started


@pytest.mark.parametrize("service", ["nats", "gateway"])
def test_a_service_that_the_kernel_kills_for_its_memory_loses_nothing(
    up: FairleadUp, tmp_path: Path, service: str
) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()
    pid = up.pids()[service]
    group = _Cgroup(f"fairlead-test-{pid}", 1 << 20)
    data = base64.b64encode(bytes(PICTURE_BYTES)).decode()
    picture = {"name": "picture", "media_type": "image/png", "data": data}
    accepted: list[str] = []
    try:
        group.add(pid)
        for _ in range(20):
            session = up.session()
            words = {"text": f"run: echo {session} >> {ledger}", "key": "k", "attachments": [picture]}
            up.api("POST", f"/api/sessions/{session}/prompt", words)
            accepted.append(session)
            if up.pids().get(service, pid) != pid:
                break
        else:
            raise AssertionError(f"{service} lives on 1 MiB more\n{up.tail()}")
    finally:
        group.remove()
    eventually(
        lambda: sorted(ledger.read_text().split()) == sorted(accepted), "all commands ran, each once", 60.0
    )
    for each in accepted:
        (end,) = _ended(up, each)
        assert end["outcome"] == "completed", end


def _ended(up: FairleadUp, session: str) -> list[dict[str, Any]]:
    def ends() -> list[dict[str, Any]]:
        return [entry for entry in up.entries(session) if entry["type"] == "run_end"]

    eventually(ends, "the run ends", 30.0)
    return ends()
