"""Executors by themselves: calls go to them over NATS as the agents send them, and results come back."""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec
import psutil

from bench.latency import Result
from bench.report import Row
from bench.setting import Options
from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import new_id
from fairlead_common.protocol.messages import ExecutorInfo, SandboxKind, ToolCall, ToolResult
from fairlead_common.received import Delivery
from tests.chaos.containers import Containers
from tests.support import boxes
from tests.support.nats_server import NatsServer

HOST = "bench"
_EVERY_RESULT = "fairlead.live.*.in.result.*"


class Executors:
    """Some executors of one host, and what is asked of them."""

    def __init__(self, bus: Bus, home: Path, processes: "list[subprocess.Popen[bytes]]") -> None:
        self.bus = bus
        self.home = home
        self.processes = processes
        self._results: dict[str, asyncio.Future[ToolResult]] = {}

    def note(self, delivery: Delivery) -> None:
        """A result came."""
        waiting = self._results.pop(delivery.subject.rpartition(".")[2], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(msgspec.json.decode(delivery.data, type=ToolResult))

    async def call(self, command: str, session: str = "bench", sandbox: SandboxKind = "local") -> str:
        """The id of a command that was run to its end, successfully."""
        call = ToolCall(
            call_id=new_id(),
            session=session,
            name="bash",
            arguments={"command": command},
            workspace="",
            token=new_id(),
            sandbox=sandbox,
            scope=f"session-{session}",
        )
        done = self._results[call.call_id] = asyncio.get_running_loop().create_future()
        request = subjects.tool_request(HOST, call.call_id)
        await self.bus.create(subjects.TOOLS, request, msgspec.json.encode(call))
        async with asyncio.timeout(120):
            outcome = (await done).outcome
        assert (outcome.status, outcome.exit_code) == ("ok", 0), f"{command}: {outcome}"
        return call.call_id

    async def spans_ms(self, call: str, session: str = "bench") -> tuple[float, float]:
        """From the request to the claim, and from the claim to the result, by the server's clock."""
        times = []
        for stream, subject in (
            (subjects.TOOLS, subjects.tool_request(HOST, call)),
            (subjects.TOOLS, subjects.tool_claim(HOST, call)),
            (subjects.SESSIONS, subjects.mail(session, "result", call)),
        ):
            record = await self.bus.last(stream, subject)
            assert record is not None, subject
            times.append(_seconds(record.headers["Nats-Time-Stamp"]))
        return (times[1] - times[0]) * 1000, (times[2] - times[1]) * 1000

    async def offered(self, patience_s: float) -> list[ExecutorInfo]:
        """The heartbeats that are there once all executors have told theirs, or `patience_s` has passed."""
        bucket = Bucket(self.bus, subjects.BUCKET_EXECUTORS)
        end = time.monotonic() + patience_s
        while True:
            found = [await bucket.get(f"{HOST}.e{number}") for number in range(1, len(self.processes) + 1)]
            if all(found) or time.monotonic() > end:
                return [msgspec.json.decode(each.data, type=ExecutorInfo) for each in found if each]
            await asyncio.sleep(0.02)

    def cpu_ms(self) -> dict[str, float]:
        """CPU that the executors, their runners and what those have run have used so far."""
        used = {"executors": 0.0, "runners": 0.0}
        for process in psutil.process_iter():
            try:
                if any(process.pid == each.pid for each in self.processes):
                    times = process.cpu_times()
                    used["executors"] += times.user + times.system
                elif any(str(self.home) in word for word in process.cmdline()):
                    times = process.cpu_times()
                    used["runners"] += sum(times[:4])
            except psutil.Error:
                continue
        return {name: seconds * 1000 for name, seconds in used.items()}

    async def sandboxes(self, wanted: str, patience_s: float) -> bool:
        """Whether all executors offer a sandbox within `patience_s`."""
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            infos = await self.offered(patience_s)
            if infos and all(wanted in info.sandboxes for info in infos):
                return True
            await asyncio.sleep(0.1)
        return False


def _seconds(stamp: str) -> float:
    """The server's time stamp, which has nanoseconds, in seconds since 1970."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


@asynccontextmanager
async def executors(options: Options, count: int, name: str, capacity: int = 0) -> AsyncIterator[Executors]:
    """`count` executors on a NATS server of their own, ready to be asked."""
    folder = options.work / name
    server = NatsServer(folder / "nats").start()
    home = folder / "home"
    made: Executors | None = None
    bus = await Bus.connect(BusSettings(url=server.url), name="bench")
    try:
        await provision(bus)
        processes = [
            _start(server.url, home, folder, f"e{number}", capacity) for number in range(1, count + 1)
        ]
        made = Executors(bus, home, processes)
        await bus.subscribe(_EVERY_RESULT, made.note)
        assert len(await made.offered(60.0)) == count, "executors do not start"
        yield made
    finally:
        started = made.processes if made is not None else []
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(timeout=30)
        end_what_is_left(home)
        await bus.close()
        server.stop()


def _start(url: str, home: Path, folder: Path, name: str, capacity: int) -> "subprocess.Popen[bytes]":
    environment = {
        **{key: os.environ[key] for key in ("PATH", "HOME", "LANG", "DOCKER_HOST") if key in os.environ},
        "FAIRLEAD_NATS_URL": url,
        "FAIRLEAD_HOME": str(home),
        "FAIRLEAD_HOST": HOST,
        "FAIRLEAD_EXECUTOR": name,
        "FAIRLEAD_WORKSPACE": str(folder / "workspace"),
        **({"FAIRLEAD_TOOLS_CAPACITY": str(capacity)} if capacity else {}),
    }
    make_workspace(folder)
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "fairlead_tools.main"], env=environment, stdout=log, stderr=log
        )


def make_workspace(folder: Path) -> Path:
    """A workspace that commands in containers may write to, which do not run as root."""
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        os.chown(workspace, 1000, 1000)
    return workspace


def end_what_is_left(home: Path) -> None:
    """Runners and containers outlive their executors on purpose."""
    Containers(home).remove()
    for state in (home, *home.glob("tools/*")):
        boxes.clear(state)
    for process in psutil.process_iter():
        try:
            if any(str(home) in word for word in process.cmdline()):
                process.kill()
        except psutil.Error:
            continue


async def scale_tools(options: Options) -> Result:
    """64 commands of one second on 1, 2 and 4 executors of a host, against what their capacity allows."""
    rows, found = [], {}
    calls = 64
    for count in (2, 4) if options.quick else (1, 2, 4):
        async with executors(options, count, f"scale-{count}") as here:
            infos = await here.offered(30.0)
            await asyncio.gather(*(here.call("true", f"s{number}") for number in range(calls)))
            began = time.monotonic()
            took = await asyncio.gather(
                *(_timed(here, "sleep 1", f"s{number}", began) for number in range(calls))
            )
        slots = sum(info.capacity for info in infos)
        ideal = -(-calls // slots)
        found[str(count)] = {
            "slots": slots,
            "ideal_s": ideal,
            "took_s": max(took),
            "ends_s": sorted(round(each, 2) for each in took),
            "mean_s": statistics.mean(took),
        }
        note = f"{max(took) / ideal:.2f}x of {ideal} s with {slots} slots"
        rows.append(
            Row(
                f"{count} executors: {calls} commands of 1 s",
                round(max(took), 2),
                "s",
                1.15 * ideal,
                note=note,
            )
        )
    return rows, found


async def _timed(here: Executors, command: str, session: str, began: float) -> float:
    await here.call(command, session)
    return time.monotonic() - began
