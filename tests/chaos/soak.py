"""A soak: one prompt a second for half an hour, a fault a minute, and nothing may grow that need not.

python -m tests.chaos.soak --minutes 30 --rate 1 --fault-every 60 --out bench/results/soak.json

Sessions come and go: a new one every few seconds, some of them with a workspace of their own; most are
deleted, the others are left and now and then spoken to again. `agent-2`, `tools-2` and `scheduler-2` are
never hurt, so that they see all of it; the gateway and the NATS server are killed once, early.
"""

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.chaos.api import Api
from tests.chaos.evidence import ended
from tests.chaos.measure import percentile
from tests.chaos.points.record import commit
from tests.chaos.soak_samples import Sample, report, sample
from tests.chaos.stack import Shape, Stack, innermost, send
from tests.support.nats_server import NatsServer
from tests.support.ports import free_port

FOLDER = Path("tests/_evidence/soak")
ACTIVE = 10
LEFT = 15  # sessions that are left alone before the oldest of them is deleted too
PATIENCE_S = 60.0  # for one prompt, faults included
DRAIN_S = 60.0


@dataclass
class Talk:
    """One session, and who follows it."""

    session: str
    follower: asyncio.Task[None] | None = None
    open: dict[str, float] = field(default_factory=dict)  # key of each prompt under way: since when
    last_id: str | None = None


class Soak:
    """The load, the faults and the samples of one soak."""

    def __init__(self, stack: Stack, nats: NatsServer, monitor: int, arguments: argparse.Namespace) -> None:
        self._stack = stack
        self._nats = nats
        self._monitor = monitor
        self._rate = arguments.rate
        self._fault_every_s = arguments.fault_every
        self._seconds = arguments.minutes * 60
        self._sample_every_s = min(60.0, self._seconds / 12)
        self._random = random.Random(arguments.seed)
        self._began = time.monotonic()
        self._active: list[Talk] = []
        self._left: list[Talk] = []
        self._numbers = iter(range(1, 1 << 30))
        self.counts: Counter[str] = Counter()
        self.took_ms: list[float] = []
        self.late: list[str] = []
        self.faults: list[dict[str, Any]] = []
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """All of it, and a while after it in which everything must come to its end."""
        assert self._stack.up is not None
        async with Api(self._stack.up.base_url, self._stack.up.token) as self._api:
            async with asyncio.TaskGroup() as self._tasks:
                parts = [
                    self._tasks.create_task(each) for each in (self._talk(), self._hurt(), self._measure())
                ]
                await asyncio.sleep(self._seconds)
                for part in parts:
                    part.cancel()
                await self._drain()
            self.samples.append(await self._sample())

    # -- load --------------------------------------------------------------------

    async def _talk(self) -> None:
        due = time.monotonic()
        while True:
            due += 1 / self._rate
            self._tasks.create_task(self._say())
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _say(self) -> None:
        number = next(self._numbers)
        talk = await self._somebody(number)
        key = f"k{number}"
        talk.open[key] = time.monotonic()
        words = self._random.choice(("steps=1", "steps=1", "steps=2", "steps=1 calls=2", "say 40 tokens"))
        body = {"text": f"op=P{number} {words} sleep=0.05", "key": key}
        if self._random.random() < 0.05:
            body["text"] = f'op=P{number} steps=1 run="seq 1 60000"'  # its output goes to the object store
        answer = await self._api.request("POST", f"/api/sessions/{talk.session}/prompt", body)
        self.counts["accepted" if answer.accepted else f"refused {answer.status}"] += 1
        if not answer.accepted:
            talk.open.pop(key, None)

    async def _somebody(self, number: int) -> Talk:
        """A session that is active, a new one, or one that was left."""
        if len(self._active) < ACTIVE or self._random.random() < 0.08:
            fields = {"agent": "scratch"} if self._random.random() < 0.2 else {}
            talk = Talk(f"s{number}")
            await self._api.request("POST", "/api/sessions", {"id": talk.session, **fields})
            self.counts["sessions"] += 1
            self._begin(talk)
            return talk
        if self._left and self._random.random() < 0.05:
            talk = self._left.pop(self._random.randrange(len(self._left)))
            self.counts["returned"] += 1
            self._begin(talk)
            return talk
        return self._random.choice(self._active)

    def _begin(self, talk: Talk) -> None:
        talk.follower = self._tasks.create_task(self._follow(talk))
        self._active.append(talk)
        if len(self._active) > ACTIVE:
            self._tasks.create_task(self._retire(self._active.pop(0)))

    async def _retire(self, talk: Talk) -> None:
        """Leave it once it is idle; two of three are deleted."""
        await self._settle(talk)
        if talk.follower is not None:
            talk.follower.cancel()
        if self._random.random() < 0.33:
            self._left.append(talk)
            if len(self._left) <= LEFT:
                return
            talk = self._left.pop(0)
        await self._api.request("DELETE", f"/api/sessions/{talk.session}")
        self.counts["deleted"] += 1

    async def _settle(self, talk: Talk) -> None:
        while talk.open:
            oldest = min(talk.open.values())
            if time.monotonic() - oldest > PATIENCE_S:
                self.late += [f"{talk.session} {key}" for key in talk.open]
                talk.open.clear()
            await asyncio.sleep(0.1)

    async def _follow(self, talk: Talk) -> None:
        while True:
            cut_s = self._random.uniform(5, 60)
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async for event in self._api.events(talk.session, last_id=talk.last_id, cut_after_s=cut_s):
                    talk.last_id = event["id"] or talk.last_id
                    if event["event"] == "entry" and ended(event["entry"]):
                        self._note(talk, event["entry"].get("keys", []))
            await asyncio.sleep(0.2)

    def _note(self, talk: Talk, keys: list[str]) -> None:
        for key in keys:
            since = talk.open.pop(key, None)
            if since is not None:
                self.took_ms.append(1000 * (time.monotonic() - since))
                self.counts["ended"] += 1

    async def _drain(self) -> None:
        talks = [*self._active, *self._left]
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await asyncio.gather(*(self._settle(talk) for talk in talks))
        self.late += [f"{talk.session} {key}" for talk in talks for key in talk.open]
        for talk in talks:
            if talk.follower is not None:
                talk.follower.cancel()

    # -- faults ------------------------------------------------------------------

    async def _hurt(self) -> None:
        plan = self._plan()
        while True:
            await asyncio.sleep(self._fault_every_s)
            name = next(plan)
            landed = await self._strike(name)
            self.faults.append(
                {"t_s": round(time.monotonic() - self._began), "fault": name, "landed": landed}
            )

    def _plan(self) -> Iterator[str]:
        yield from ("kill agent-1", "kill tools-1", "kill gateway", "kill nats", "kill runner")
        while True:
            yield from ("pause agent-1", "kill tools-1", "kill scheduler-1", "term agent-1", "kill runner")
            yield from ("kill agent-1", "pause tools-1", "kill webui", "term tools-1", "kill runner")

    async def _strike(self, name: str) -> bool:
        verb, _, target = name.partition(" ")
        if target == "nats":
            await asyncio.to_thread(self._nats.kill)
            await asyncio.sleep(1.0)
            await asyncio.to_thread(self._nats.start)
            return True
        if target == "runner":
            runners = await asyncio.to_thread(self._stack.runners)
            return bool(runners) and send(innermost(runners[0]).pid, signal.SIGKILL)
        pid = self._stack.services().get(target)
        if pid is None:
            return False
        if verb == "pause":
            sent = send(pid, signal.SIGSTOP)
            await asyncio.sleep(6.0)
            return send(pid, signal.SIGCONT) and sent
        return send(pid, signal.SIGKILL if verb == "kill" else signal.SIGTERM)

    # -- samples -----------------------------------------------------------------

    async def _sample(self) -> Sample:
        made = await asyncio.to_thread(sample, self._stack, self._monitor, self._began)
        made["counts"] |= {"sessions spoken to": len(self._active), "sessions left alone": len(self._left)}
        return made

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(self._sample_every_s)
            made = await self._sample()
            self.samples.append(made)
            memory = {name.partition(":")[0]: each.get("pss_mb") for name, each in made["processes"].items()}
            print(f"{made['t_s']:6.0f} s  {dict(self.counts)}  {memory}", flush=True)

    def result(self) -> dict[str, Any]:
        """For JSON; `problems` must be empty."""
        warm_up_s = min(240.0, self._seconds / 4)
        shown, problems = report(self.samples, warm_up_s)
        problems += [f"not ended within {PATIENCE_S:g} s: {each}" for each in self.late]
        return {
            "commit": commit(),
            "seconds": self._seconds,
            "problems": problems,
            "load": dict(self.counts),
            "answered_ms": {f"p{p}": percentile(self.took_ms, p) for p in (50, 99, 100)},
            "faults": self.faults,
            "warm_up_s": warm_up_s,
            **shown,
            "samples": self.samples,
        }


def main() -> int:
    """Exit status 0 if everything ended and nothing grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=1.0, help="prompts a second")
    parser.add_argument("--fault-every", type=float, default=60.0, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without ending what was started
    folder = FOLDER.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    monitor = free_port()
    nats = NatsServer(folder / "nats", extra=f'http: "127.0.0.1:{monitor}"').start()
    shape = Shape(
        workers="agent=2,tools=2,scheduler=2",
        sets=(
            "agents.main.mode=allow-all",
            "agents.scratch.mode=allow-all",
            "agents.scratch.workspace_kind=scratch",
            "agents.scratch.sandbox.kind=local",
        ),
        nats=nats.url,
    )
    try:
        with Stack(folder, shape, fsync_model=False) as stack:
            soak = Soak(stack, nats, monitor, arguments)
            asyncio.run(soak.run())
            result = soak.result()
    finally:
        nats.stop()
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name != "samples"}, indent=1))
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
