"""Jobs in memory: when they fire, what is caught up, how runs end, with agents and schedulers that die."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from fairlead_common.protocol import subjects as s
from fairlead_scheduler import main as scheduler_main
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.memory_world import MemoryWorld, memory_world
from tests.support.scheduler_world import FAST, ask, at, event_job, mail, slots, turn_job


class Scheduler:
    """A scheduler service on a connection of its own."""

    def __init__(self, server: FakeServer, bus: FakeBus) -> None:
        self.stop = asyncio.Event()
        self._server = server
        self._bus = bus
        self._running: list[asyncio.Task[object]] = []

    async def start(self) -> None:
        for part in await scheduler_main.setup(self._bus):
            self._running.append(asyncio.ensure_future(part(self.stop)))

    async def kill(self) -> None:
        self._server.bury(self._bus)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def close(self) -> None:
        self.stop.set()
        await asyncio.wait(self._running, timeout=10)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._bus.close()


class Jobs:
    """The world with schedulers, and what a client asks of them."""

    def __init__(self, w: MemoryWorld, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.w = w
        self.bus = w.bus
        self._server = server
        self._patch = monkeypatch
        self._made: list[Scheduler] = []

    async def scheduler(self, name: str = "scheduler-1") -> Scheduler:
        self._patch.setenv("FAIRLEAD_WORKER", name)
        self._patch.setenv("FAIRLEAD_OVERRIDES", msgspec.json.encode(FAST).decode())
        made = Scheduler(self._server, await self._server.connect(name))
        self._made.append(made)
        await made.start()
        return made

    async def add(self, job: dict[str, Any], **schedule: Any) -> str:
        return str((await ask(self.bus, "cron.add", job={**job, **schedule}))["job"]["id"])

    async def ended(self, job: str, count: int = 1, timeout_s: float = 600.0) -> list[dict[str, Any]]:
        """The runs of a job, once so many have ended."""
        async with asyncio.timeout(timeout_s):
            while True:
                entries = (await ask(self.bus, "cron.runs", id=job))["entries"]
                found = [each for each in entries if each["status"] in ("ok", "error", "skipped")]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.5)

    async def close(self) -> None:
        for made in self._made:
            await made.close()


@pytest.fixture
async def jobs(server: FakeServer, bus: FakeBus, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Jobs]:
    async with memory_world(server, bus, monkeypatch) as w:
        made = Jobs(w, server, monkeypatch)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(made.close)
            yield made


async def test_a_job_at_a_time_fires_once_at_that_time(jobs: Jobs) -> None:
    await jobs.scheduler()
    job = await jobs.add(event_job("rain"), schedule=at(300))
    await asyncio.sleep(290)
    assert await slots(jobs.bus, job) == []
    await asyncio.sleep(20)
    assert len(await slots(jobs.bus, job)) == 1
    assert [body["text"] for _, body in await mail(jobs.bus, "main") if "text" in body] == ["rain"]
    await asyncio.sleep(600)
    assert len(await slots(jobs.bus, job)) == 1


async def test_a_job_every_minute_fires_every_minute(jobs: Jobs) -> None:
    await jobs.scheduler()
    job = await jobs.add(event_job(), schedule={"kind": "every", "everyMs": 60_000})
    await asyncio.sleep(305)
    assert len(await slots(jobs.bus, job)) == 5


async def test_two_schedulers_fire_each_slot_once_and_one_goes_on_when_the_other_dies(jobs: Jobs) -> None:
    first = await jobs.scheduler("scheduler-1")
    await asyncio.sleep(5)
    await jobs.scheduler("scheduler-2")
    job = await jobs.add(event_job(), schedule={"kind": "every", "everyMs": 60_000})
    await asyncio.sleep(130)
    assert len(await slots(jobs.bus, job)) == 2
    await first.kill()
    await asyncio.sleep(180)
    fired = await slots(jobs.bus, job)
    assert len(fired) == len(set(fired)) == 5
    notices = [key for key, _ in await mail(jobs.bus, "main") if key.startswith("system-")]
    assert len(notices) == len(set(notices)) == 5


async def test_slots_that_nobody_fired_are_caught_up_as_one(jobs: Jobs) -> None:
    first = await jobs.scheduler("scheduler-1")
    job = await jobs.add(event_job(), schedule={"kind": "every", "everyMs": 60_000})
    await asyncio.sleep(65)
    await first.kill()
    await asyncio.sleep(600)
    assert len(await slots(jobs.bus, job)) == 1
    await jobs.scheduler("scheduler-2")
    await asyncio.sleep(30)
    assert len(await slots(jobs.bus, job)) == 2


async def test_a_run_of_its_own_is_done_by_an_agent_and_recorded_with_its_answer(jobs: Jobs) -> None:
    await jobs.scheduler()
    await jobs.w.agent()
    job = await jobs.add(turn_job("op=P1 steps=1"), schedule=at(10))
    (run,) = await jobs.ended(job)
    assert run["status"] == "ok"
    assert "done P1" in str(run)
    assert len(jobs.w.calls) == 1


async def test_a_scheduler_that_dies_in_the_middle_of_a_run_is_made_up_for(jobs: Jobs) -> None:
    first = await jobs.scheduler("scheduler-1")
    await jobs.w.agent()
    jobs.w.mind.pause_s = 20.0
    job = await jobs.add(turn_job("op=P1"), schedule=at(10))
    await jobs.w.mind.streaming.wait()
    await first.kill()
    await jobs.scheduler("scheduler-2")
    (run,) = await jobs.ended(job)
    assert run["status"] == "ok"
    assert len(jobs.w.mind.requests) == 1
    assert len(await slots(jobs.bus, job)) == 1


async def test_runs_of_one_job_do_not_overlap(jobs: Jobs) -> None:
    await jobs.scheduler()
    await jobs.w.agent()
    jobs.w.mind.pause_s = 150.0
    job = await jobs.add(turn_job("op=P1"), schedule={"kind": "every", "everyMs": 60_000})
    running: list[int] = []
    for _ in range(30):
        await asyncio.sleep(20)
        entries = (await ask(jobs.bus, "cron.runs", id=job))["entries"]
        running.append(sum(each["status"] == "running" for each in entries))
    assert max(running) == 1
    sessions = {r.subject async for r in jobs.bus.read(s.SESSIONS, "fairlead.session.*.log")}
    assert 2 <= len(sessions) <= 5
