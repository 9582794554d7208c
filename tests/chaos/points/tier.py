"""The fail-point tier: one stack, many short runs, each with one process hurt at one named place.

A run counts only if its fault landed: the process said so on the disk, and is gone, or stopped, or goes on.
"""

import asyncio
import functools
import json
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead_common.failpoints import DROP_ACK, KILL, POINTS, STOP
from tests.chaos.api import Api
from tests.chaos.driver import T_STUCK_S, Driver
from tests.chaos.evidence import Evidence, Journal, Record, parse_ledger, read_lines
from tests.chaos.measure import Numbers, measure
from tests.chaos.oracle import Violation, judge
from tests.chaos.points.conversations import ABOUT
from tests.chaos.points.scenes import scene_of
from tests.chaos.points.stage import Scene, Stage
from tests.chaos.stack import Shape, Stack, is_gone, is_stopped, send

LEASE_S = 2.0
STOP_S = LEASE_S + 1.2  # a process that is stopped so long has lost its lease
LANDS_WITHIN_S = 25.0
BATCH = 60
TRIES = 5
_PRICED = {
    "openai/priced": {"input_usd_per_mtok": 10, "output_usd_per_mtok": 100, "max_output_tokens": 1500},
}
_KINDS = {KILL: "kill", STOP: "pause", DROP_ACK: "network"}


@dataclass(frozen=True)
class Spec:
    """One run: what is done where. `about`: the scene, if it is not the one that the point usually has."""

    seed: int
    point: str
    action: str
    stop_s: float = STOP_S
    about: str = ""

    @property
    def command(self) -> str:
        """What runs it again."""
        return (
            f"python -m tests.chaos.run --tier points --point {self.point} --action {self.action}"
            f" --seed {self.seed}{f' --about {self.about}' if self.about else ''}"
        )


@dataclass
class PointRun:
    """What came of one run. `tries` counts those before it that did not count."""

    spec: Spec
    seconds: float = 0.0
    landed: bool = False
    numbers: Numbers = field(default_factory=Numbers)
    sessions: int = 0
    violations: list[Violation] = field(default_factory=list)
    trouble: str = ""
    tries: int = 0
    folder: str = ""

    @property
    def verdict(self) -> str:
        if self.violations:
            return "BROKEN"
        return "ok" if self.landed and not self.trouble else "invalid"

    def as_dict(self) -> dict[str, Any]:
        return {
            "seed": self.spec.seed,
            "point": self.spec.point,
            "action": self.spec.action,
            "about": self.spec.about,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 2),
            "tries": self.tries,
            "trouble": self.trouble[:500],
            "landed": self.landed,
            "sessions": self.sessions,
            "violations": [violation._asdict() for violation in self.violations],
            "numbers": {name: value for name, value in vars(self.numbers).items() if value},
        }

    @classmethod
    def of(cls, made: dict[str, Any]) -> "PointRun":
        """The run that `as_dict` told of."""
        numbers = Numbers(**made["numbers"])
        numbers.outcomes = Counter(numbers.outcomes)
        return cls(
            Spec(made["seed"], made["point"], made["action"], about=made.get("about", "")),
            made["seconds"],
            made["landed"],
            numbers,
            made["sessions"],
            [Violation(**each) for each in made["violations"]],
            made["trouble"],
            made["tries"],
        )


def plan(seed: int, runs: int, point: str = "", action: str = "", about: Sequence[str] = ()) -> list[Spec]:
    """So many runs over all points and actions, or over those that are named, in an order by the seed.

    Every pair comes as often as every other, give or take one.

    Args:
        about: only these scenes of `ABOUT`, each cut off at all of its steps.
    """
    wanted = [("", name) for name in POINTS] if not about else _places(about)
    pairs = [
        (scene, name, each)
        for scene, name in wanted
        for each in POINTS[name].actions
        if point in ("", name) and action in ("", each)
    ]
    assert pairs, f"no such point or action: {point} {action}"
    rng = random.Random(f"plan-{seed}")
    chosen: list[tuple[str, str, str]] = []
    while len(chosen) < runs:
        rng.shuffle(pairs)
        chosen += pairs
    return [Spec(seed + n, name, each, about=scene) for n, (scene, name, each) in enumerate(chosen[:runs])]


def _places(about: Sequence[str]) -> list[tuple[str, str]]:
    """Scenes, and the points that each of them is cut off at."""
    steps = [(scene, step) for scene in about for step in ABOUT[scene]]
    return [(scene, name) for scene, step in steps for name in POINTS if POINTS[name].step == step]


def shape(folder: Path, mutant: str = "") -> Shape:
    """Two of each service, leases so short that a stopped process loses them soon."""
    environ = {
        "FAIRLEAD_FAILPOINTS": str(folder / "failpoints"),
        "FAIRLEAD_AGENT_LEASE_S": f"{LEASE_S:g}",
        "FAIRLEAD_SCHEDULER_LEASE_S": f"{LEASE_S:g}",
    }
    sets = (
        "agents.hasty.approval_timeout_s=0.8",
        "agents.hasty.sandbox.kind=local",
        "agents.hasty.sandbox.scope=agent",
        "agents.small.context_window=24000",
        "agents.small.mode=allow-all",
        "agents.small.sandbox.kind=local",
        "agents.small.sandbox.scope=agent",
        "agents.own.workspace_kind=scratch",
        "agents.own.sandbox.kind=local",
        "agents.own.sandbox.scope=agent",
        'agents.falling.fallbacks=["openai/second"]',
        "agents.frugal.model=openai/priced",
        "agents.poor.model=openai/priced",
        "agents.frugal.budget.usd_per_day=1000",
        "agents.poor.budget.usd_per_day=0.000001",
        *(
            f"agents.{name}.{setting}"
            for name in ("falling", "frugal", "poor")
            for setting in ("mode=allow-all", "sandbox.kind=local", "sandbox.scope=agent")
        ),
        f"models.entries={json.dumps(_PRICED)}",
        "agents.slow.approval_timeout_s=2",
        "agents.slow.sandbox.kind=local",
        "agents.slow.sandbox.scope=agent",
    )
    workers = "agent=2,tools=2,scheduler=2,webui=0"
    return Shape(workers=workers, mutant=mutant, sets=sets, environ=tuple(environ.items()))


class Batch:
    """Runs on one stack, one after the other; use as a context manager.

    Args:
        patience_s: how long after the fault everything must be idle.
        settle_s: how long to wait then for what should not come.
    """

    def __init__(
        self, folder: Path, mutant: str = "", patience_s: float = T_STUCK_S, settle_s: float = 0.0
    ) -> None:
        self._patience_s, self._settle_s = patience_s, settle_s
        self.folder = folder
        self._armed = folder / "failpoints"
        self._armed.mkdir(parents=True)
        self._stack = Stack(folder, shape(folder, mutant))
        self._judged: dict[str, int] = {}  # session: last entry when it was judged

    def __enter__(self) -> "Batch":
        self._stack.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)

    def run(self, spec: Spec) -> PointRun:
        """One run, judged."""
        began = time.monotonic()
        made = PointRun(spec, folder=str(self.folder / f"run-{spec.seed}"))
        try:
            asyncio.run(self._run(spec, made))
        except (AssertionError, OSError, TimeoutError) as error:
            made.trouble = f"{type(error).__name__}: {str(error)[:1000]}"
            Path(made.folder, "trouble.txt").write_text("".join(traceback.format_exception(error)))
        finally:
            (self._armed / spec.point).unlink(missing_ok=True)
        made.seconds = time.monotonic() - began
        Path(made.folder, "result.json").write_text(json.dumps(made.as_dict(), indent=1))
        return made

    async def _run(self, spec: Spec, made: PointRun) -> None:
        up = self._stack.up
        assert up is not None
        folder = Path(made.folder)
        folder.mkdir()
        await asyncio.to_thread(up.wait_ready, 30.0)
        files = {name: self._stack.folder / name for name in ("model.jsonl", "failpoints/landed")}
        files["ledger"] = up.workspace / "ledger.log"
        since = {name: path.stat().st_size if path.exists() else 0 for name, path in files.items()}
        scene = scene_of(POINTS[spec.point].step, spec.about)
        async with Api(up.base_url, up.token) as api:
            tag = f"{spec.seed}x{int(time.time() * 10) % 100_000}"  # a run that is repeated has other names
            driver = Driver(api, folder, spec.seed, scene.load, tag=tag)
            faults = Journal(folder / "faults.jsonl")
            stage = Stage(driver, api, self._stack, tag, faults, functools.partial(self._arm, spec))
            try:
                await self._play(stage, scene, spec, made, since["failpoints/landed"])
                await driver.quiesce(self._patience_s)
                await asyncio.sleep(self._settle_s)
            finally:
                world = await driver.world()
        (folder / "world.json").write_text(json.dumps(world))
        for name, path in files.items():
            (folder / Path(name).name).write_bytes(_after(path, since[name]))
        evidence = self._evidence(folder, world)
        made.numbers, made.sessions = measure(evidence), len(world["modes"])
        made.violations = judge(evidence) + stage.problems
        for session, entries in world["entries"].items():
            self._judged[session] = entries[-1]["seq"] if entries else 0

    def _arm(self, spec: Spec) -> None:
        new = self._armed / ".new"
        new.write_text(f"{spec.action} 1")
        new.rename(self._armed / spec.point)

    async def _play(self, stage: Stage, scene: Scene, spec: Spec, made: PointRun, since: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            playing = tasks.create_task(scene.play(stage))
            hit = await self._hit(spec, since, playing)
            if hit is None:
                return
            pid = int(hit["pid"])
            check = {KILL: is_gone, STOP: is_stopped, DROP_ACK: lambda _: True}[spec.action]
            made.landed = await _soon(functools.partial(check, pid))
            stage.hit.set()
            service = spec.point.partition(".")[0]
            unknown = POINTS[spec.point].may_be_unknown and spec.action == KILL
            target = "runner" if unknown else f"{service} (certain)"
            stage.faults.write({**hit, "kind": _KINDS[spec.action], "target": target, "landed": made.landed})
            if spec.action == STOP:
                await asyncio.sleep(spec.stop_s)
                send(pid, signal.SIGCONT)

    async def _hit(self, spec: Spec, since: int, playing: asyncio.Task[None]) -> Record | None:
        """What the process left before it acted; None if no one passed the point in time."""
        path = self._armed / "landed"
        deadline = time.monotonic() + LANDS_WITHIN_S
        while time.monotonic() < deadline:
            for line in _after(path, since).splitlines():
                found: Record = json.loads(line)
                if found["point"] == spec.point:
                    return found
            if playing.done() and playing.exception():
                return None
            await asyncio.sleep(0.02)
        return None

    def _evidence(self, folder: Path, world: Record) -> Evidence:
        followed: dict[str, list[Record]] = {session: [] for session in world["modes"]}
        for record in read_lines(folder / "followed.jsonl"):
            followed[record["session"]].append(record)
        return Evidence(
            client=read_lines(folder / "client.jsonl"),
            model=read_lines(folder / "model.jsonl"),
            ledger=parse_ledger((folder / "ledger").read_text()),
            entries=world["entries"],
            followed=followed,
            status=world["status"],
            modes=world["modes"],
            faults=read_lines(folder / "faults.jsonl"),
        )

    def finish(self) -> list[Violation]:
        """What shows only now: late entries, commands that ran twice, processes that outlive the stop."""
        up = self._stack.up
        assert up is not None
        found = asyncio.run(self._late(up.base_url, up.token))
        up.stop()
        ledger = up.workspace / "ledger.log"
        counts = Evidence(ledger=parse_ledger(ledger.read_text()) if ledger.exists() else []).ops()
        found += [Violation("DUP", "", f"op {op} ran {n} times") for op, n in counts.items() if n > 1]
        return found + [Violation("LEAK", "", text) for text in self._stack.leftovers()]

    async def _late(self, base_url: str, token: str) -> list[Violation]:
        found = []
        async with Api(base_url, token) as api:
            for session, seq in self._judged.items():
                path = f"/api/sessions/{session}/entries?after={seq}&limit=10"
                answer = await api.request("GET", path)
                late = answer.body["entries"] if answer.accepted else [{"type": f"HTTP {answer.status}"}]
                found += [Violation("LATE", session, f"{entry['type']} after the end") for entry in late]
        return found


def run_batch(
    specs: list[Spec], folder: Path, mutant: str, tell: Callable[[PointRun], bool]
) -> tuple[list[PointRun], list[Violation]]:
    """Runs on one stack, and what its end showed. The first that does not count ends it, or `tell`.

    The folder stays when a promise was broken, or a run did not count.
    """
    shutil.rmtree(folder, ignore_errors=True)
    runs: list[PointRun] = []
    violations: list[Violation] = []
    try:
        with Batch(folder, mutant) as batch:
            for spec in specs:
                runs.append(batch.run(spec))
                if not tell(runs[-1]) or runs[-1].verdict != "ok":
                    break
            violations = batch.finish()
    except (AssertionError, OSError) as error:
        left = specs[len(runs) :]
        trouble = f"the stack: {type(error).__name__}: {str(error)[:1000]}"
        if left:
            runs.append(PointRun(left[0], trouble=trouble))
            tell(runs[-1])
    if not violations and all(run.verdict == "ok" for run in runs):
        shutil.rmtree(folder, ignore_errors=True)
    return runs, violations


def again(run: PointRun) -> PointRun:
    """What replaces a run that did not count."""
    return PointRun(run.spec, tries=run.tries + 1)


def _after(path: Path, offset: int) -> bytes:
    """The whole lines of a file after an offset."""
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(offset)
        head, newline, _ = file.read().rpartition(b"\n")
        return head + newline


async def _soon(condition: functools.partial[bool], timeout_s: float = 2.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True
