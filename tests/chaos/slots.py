"""Schedulers under faults, and what must be true of every slot afterwards.

One run: a nats-server, three schedulers as processes, jobs that fire several times a second, and a nemesis
that a seed decides: kills, stops, restarts of the server, edits. Then everything is left alone, and the
streams are read: each due slot of a job with the policy `all` was fired, none was fired twice, each has
its one effect, and each is counted once.
"""

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import ensure_consumer, provision
from fairlead_common.errors import FairleadError
from fairlead_common.protocol import subjects as s
from tests.chaos import mutants
from tests.chaos.fake_agent import answer_prompts
from tests.support.nats_server import NatsServer
from tests.support.scheduler_process import SchedulerProcess

SETTINGS: dict[str, object] = {"cron.min_interval_s": 0.05, "cron.max_concurrent_runs": 20}
SCHEDULERS = 3


@dataclass
class Wanted:
    """One job of a run, and when what it says began to count."""

    id: str
    every_ms: int
    policy: str
    first_ms: int


@dataclass
class SlotRun:
    """What came of a run."""

    seed: int
    folder: Path
    faults: list[str] = field(default_factory=list)
    fired: int = 0
    violations: list[str] = field(default_factory=list)


class Arena:
    """The processes of a run."""

    def __init__(self, folder: Path, rng: random.Random, mutant: str) -> None:
        self.rng = rng
        self.nats = NatsServer(folder / "nats").start()
        environ = mutants.environment(mutant, folder)
        self.schedulers = [
            SchedulerProcess(self.nats.url, folder, f"scheduler-{n}", SETTINGS, environ=environ)
            for n in range(SCHEDULERS)
        ]

    def close(self) -> None:
        for scheduler in self.schedulers:
            scheduler.kill()
        self.nats.kill()


async def request(bus: Bus, method: str, /, **fields: Any) -> Any:
    """An answer, however often it takes: schedulers die while they answer."""
    async with asyncio.timeout(20):
        while True:
            try:
                reply = await bus.request(s.api(method), msgspec.json.encode(fields), timeout_s=1.0)
                return msgspec.json.decode(reply.data)
            except FairleadError:
                await asyncio.sleep(0.05)


async def run_seed(
    seed: int, folder: Path, *, seconds: float = 3.0, settle_s: float = 25.0, mutant: str = ""
) -> SlotRun:
    """One run. What is in `folder` afterwards tells how it went."""
    rng = random.Random(seed)
    run = SlotRun(seed, folder)
    folder.mkdir(parents=True, exist_ok=True)
    arena = Arena(folder, rng, mutant)
    try:
        bus = await Bus.connect(BusSettings(url=arena.nats.url), name="chaos")
        try:
            await provision(bus)
            await ensure_consumer(bus, s.SLOTS, s.SLOTS_CONSUMER, s.ALL_SLOTS, ack_wait_s=1.0)
            for scheduler in arena.schedulers:
                scheduler.start()
            async with asyncio.TaskGroup() as tasks:
                agent = tasks.create_task(answer_prompts(bus))
                jobs, once = await _jobs(bus, rng)
                await _torment(arena, bus, run, jobs, seconds)
                end_ms = round(time.time() * 1000)
                await _settle(arena, bus, jobs, once, end_ms, settle_s)
                run.violations = await judge(bus, jobs, once, end_ms)
                run.fired = await _count(bus)
                agent.cancel()
        finally:
            await bus.close()
    finally:
        arena.close()
    return run


async def _jobs(bus: Bus, rng: random.Random) -> tuple[list[Wanted], dict[str, int]]:
    """Jobs of all policies, and one-shot jobs with their times."""
    jobs = []
    for n in range(6):
        every_ms = rng.choice([100, 170, 300, 450])
        policy = ["all", "all", "all", "all", "one", "skip"][n]
        job = {
            "name": f"job {n}",
            "schedule": {"kind": "every", "everyMs": every_ms},
            "payload": {"kind": "systemEvent", "text": f"{n}"},
            "misfire": {"policy": policy},
            "wakeMode": rng.choice(["now", "next-heartbeat"]),
        }
        made = (await request(bus, "cron.add", job=job, key=f"j{n}"))["job"]
        jobs.append(Wanted(f"j{n}", every_ms, policy, made["createdAtMs"] + every_ms))
    isolated = {
        "name": "isolated",
        "schedule": {"kind": "every", "everyMs": 700},
        "payload": {"kind": "agentTurn", "message": "work"},
        "misfire": {"policy": "all"},
        "overlap": {"policy": "parallel", "max": 100},
        "runtime": {"maxAttempts": 3},
    }
    made = (await request(bus, "cron.add", job=isolated, key="i0"))["job"]
    jobs.append(Wanted("i0", 700, "all", made["createdAtMs"] + 700))
    once = {}
    for n in range(3):
        at_ms = round(time.time() * 1000) + rng.randrange(200, 2500)
        job = {
            "name": "once",
            "schedule": {"kind": "at", "atMs": at_ms},
            "payload": {"kind": "systemEvent", "text": "once"},
        }
        await request(bus, "cron.add", job=job, key=f"o{n}")
        once[f"o{n}"] = at_ms
    return jobs, once


async def _torment(arena: Arena, bus: Bus, run: SlotRun, jobs: list[Wanted], seconds: float) -> None:
    rng = arena.rng
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        await asyncio.sleep(rng.uniform(0.1, 0.6))
        victim = rng.choice(arena.schedulers)
        match rng.choice(["kill", "kill", "kill", "stop", "stop", "term", "nats", "edit", "pause"]):
            case "kill":
                run.faults.append(f"kill {victim.name}")
                victim.kill()
                await asyncio.sleep(rng.choice([0.0, 0.0, 0.5]))
                victim.start()
            case "stop":
                run.faults.append(f"stop {victim.name}")
                victim.signal(signal.SIGSTOP)
                await asyncio.sleep(rng.choice([0.2, 1.3, 2.0]))
                victim.signal(signal.SIGCONT)
            case "term":
                run.faults.append(f"term {victim.name}")
                await asyncio.to_thread(victim.stop)
                victim.start()
            case "nats":
                run.faults.append("kill nats")
                arena.nats.kill()
                await asyncio.sleep(rng.choice([0.0, 0.3]))
                await asyncio.to_thread(arena.nats.start)
            case "edit":
                run.faults.append("edit")
                with contextlib.suppress(TimeoutError):
                    await request(
                        bus, "cron.update", id=rng.choice(jobs).id, patch={"name": f"n{rng.random()}"}
                    )
            case "pause":
                run.faults.append("pause")
                await request(bus, "cron.pause", paused=True)
                await asyncio.sleep(rng.choice([0.1, 0.8]))
                await request(bus, "cron.pause", paused=False)
            case other:
                raise AssertionError(other)


async def _settle(
    arena: Arena, bus: Bus, jobs: list[Wanted], once: dict[str, int], end_ms: int, settle_s: float
) -> None:
    """Until all that was due is done, or it is clear that it never will be."""
    for scheduler in arena.schedulers:
        scheduler.signal(signal.SIGCONT)
        if not scheduler.alive:
            scheduler.start()
    deadline = time.monotonic() + settle_s
    while time.monotonic() < deadline:
        await asyncio.sleep(0.25)
        if not await judge(bus, jobs, once, end_ms):
            return


async def _records(bus: Bus, stream: str, subject: str) -> list[tuple[str, bytes]]:
    return [(record.subject, record.data) async for record in bus.read(stream, subject)]


async def _count(bus: Bus) -> int:
    return len(await _records(bus, s.SLOTS, s.ALL_SLOTS))


async def judge(bus: Bus, jobs: list[Wanted], once: dict[str, int], end_ms: int) -> list[str]:
    """What is wrong with the slots that were due until `end_ms`, and with all that came of any."""
    found: list[str] = []
    times: Counter[tuple[str, str]] = Counter()
    missed: set[tuple[str, str]] = set()
    for subject, data in await _records(bus, s.SLOTS, s.ALL_SLOTS):
        job, slot = _slot(subject)
        times[job, slot] += 1
        if msgspec.json.decode(data).get("missed"):
            missed.add((job, slot))
    found += [f"slot {job}.{slot} was fired {n} times" for (job, slot), n in times.items() if n > 1]
    for wanted in jobs:
        fired = {int(slot) for name, slot in times if name == wanted.id}
        due = set(range(wanted.first_ms, end_ms + 1, wanted.every_ms))
        early = {
            slot for slot in fired if (slot - wanted.first_ms) % wanted.every_ms or slot < wanted.first_ms
        }
        found += [f"slot {wanted.id}.{slot} was never due" for slot in early]
        if wanted.policy == "all":
            found += [f"slot {wanted.id}.{slot} was not fired" for slot in sorted(due - fired)]
        elif due and not any(slot >= max(due) for slot in fired):
            found.append(f"job {wanted.id} fires no more: {max(fired, default=0)} of {max(due)}")
    for name, at_ms in once.items():
        if at_ms <= end_ms and (name, str(at_ms)) not in times:
            found.append(f"one-shot {name} was not fired")
        if sum(job == name for job, _ in times) > 1:
            found.append(f"one-shot {name} was fired at other times too")
    relevant = {key for key in times if int(key[1]) <= end_ms}
    return found + await _effects(bus, relevant - missed)


def _slot(subject: str) -> tuple[str, str]:
    """Job and slot of `fairlead.cron.<job>.<slot>`."""
    _, _, job, slot = subject.split(".")
    return job, slot


async def _effects(bus: Bus, done: set[tuple[str, str]]) -> list[str]:
    found: list[str] = []
    mails: Counter[tuple[str, str]] = Counter()
    for subject, _ in await _records(bus, s.SESSIONS, "fairlead.session.main.in.notice.*"):
        kind, _, key = s.parse_session(subject).key.partition("-")
        if kind == "system":  # the others are turns that the heartbeat of `main` was given
            job, _, slot = key.rpartition("-")
            mails[job, slot] += 1
    known = {_slot(subject) for subject, _ in await _records(bus, s.SLOTS, s.ALL_SLOTS)}
    found += [f"{job}.{slot} has no effect" for job, slot in done - mails.keys()]
    found += [f"{job}.{slot} has {n} effects" for (job, slot), n in mails.items() if n > 1]
    found += [f"{job}.{slot} has an effect and was never fired" for job, slot in mails.keys() - known]
    prompts: Counter[str] = Counter()
    for subject, _ in await _records(bus, s.SESSIONS, "fairlead.session.*.in.prompt.*"):
        prompts[s.parse_session(subject).session] += 1
    found += [f"{session} was prompted {n} times" for session, n in prompts.items() if n > 1]
    found += [
        f"{job}.{slot} was not prompted"
        for job, slot in done
        if job == "i0" and not prompts[f"cron-{job}-{slot}"]
    ]
    runs: Counter[str] = Counter()
    for subject, data in await _records(bus, f"KV_{s.BUCKET_RUNS}", f"$KV.{s.BUCKET_RUNS}.run.>"):
        job, slot = subject.split(".")[-2:]
        status = msgspec.json.decode(data)["status"]
        if status == "ok":
            runs[job] += 1
        if status in ("ok", "error", "skipped"):
            done.discard((job, slot))
        if job == "i0" and status in ("error", "skipped"):
            found.append(f"{job}.{slot} ended as {status}: {msgspec.json.decode(data)['error']}")
    found += [f"{job}.{slot} is not in the history" for job, slot in done]
    for subject, data in await _records(bus, f"KV_{s.BUCKET_RUNS}", f"$KV.{s.BUCKET_RUNS}.state.*"):
        job = subject.rpartition(".")[2]
        counted = msgspec.json.decode(data)["state"]["runs"]
        # A run is counted just before it is in the history, an isolated one just after; neither is at rest.
        if not (-20 if job == "i0" else 0) <= counted - runs[job] <= 64:
            found.append(f"job {job} counted {counted} runs, there are {runs[job]}")
    return found
