"""Many runs of the fail-point tier, stacks side by side, and what they prove together."""

import itertools
import json
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlead_common.failpoints import POINTS
from tests.chaos.measure import Numbers, percentile, upper_bound
from tests.chaos.oracle import Violation
from tests.chaos.points.tier import BATCH, TRIES, PointRun, Spec, again, run_batch

SLOW_MS = 15_000.0


@dataclass
class Record:
    """All runs so far. `late`: what only the end of a batch showed."""

    runs: list[PointRun] = field(default_factory=list)
    late: list[Violation] = field(default_factory=list)
    not_counted: int = 0

    @classmethod
    def read(cls, path: Path) -> "Record":
        """What an earlier `write` told."""
        made = json.loads(path.read_text())
        return cls(
            [PointRun.of(each) for each in made["runs"]],
            [Violation(**each) for each in made["late"]],
            made["summary"]["not_counted_and_repeated"],
        )

    @property
    def broken(self) -> bool:
        return bool(self.late) or any(run.violations for run in self.runs)

    def hits(self) -> dict[str, dict[str, int]]:
        """By point and action: how many runs counted."""
        found: dict[str, dict[str, int]] = {
            name: dict.fromkeys(about.actions, 0) for name, about in POINTS.items()
        }
        for run in self.runs:
            if run.landed and not run.trouble:
                found[run.spec.point][run.spec.action] += 1
        return found

    def summary(self) -> dict[str, Any]:
        """Together, with what the zeros prove (95 %: 3/n where nothing was seen)."""
        counted = [run for run in self.runs if run.verdict != "invalid"]
        total = Numbers()
        for run in counted:
            total = total.plus(run.numbers)
        kinds = Counter(violation.kind for run in counted for violation in run.violations)
        kinds.update(violation.kind for violation in self.late)
        broken = sum(1 for run in counted if run.violations)
        sessions = sum(run.sessions for run in counted)
        hits = self.hits()
        by_action: dict[str, list[float]] = defaultdict(list)
        for run in counted:
            by_action[run.spec.action] += run.numbers.recovery_ms
        return {
            "runs": len(self.runs),
            "counted": len(counted),
            "not_counted_and_repeated": self.not_counted,
            "broken": broken,
            "violations": dict(kinds),
            "lost": kinds["LOST"] + kinds["STEER"],
            "started_twice": kinds["DUP"],
            "stuck": kinds["STUCK"],
            "sessions": sessions,
            "points": len(POINTS),
            "pairs": sum(len(each) for each in hits.values()),
            "pairs_not_hit": [f"{p}:{a}" for p, each in hits.items() for a, n in each.items() if not n],
            "upper_bound_95": {
                "broken_runs": upper_bound(broken, len(counted)),
                "lost_prompts": upper_bound(kinds["LOST"] + kinds["STEER"], total.accepted),
                "duplicated_ops": upper_bound(kinds["DUP"], total.ops),
                "stuck_sessions": upper_bound(kinds["STUCK"], sessions),
                "broken_per_kill": upper_bound(broken, total.kills),
            },
            "recovery_ms": {
                action: {"p50": percentile(values, 50), "p99": percentile(values, 99), "count": len(values)}
                for action, values in by_action.items()
            },
            "slower_than_15_s": sum(1 for value in total.recovery_ms if value > SLOW_MS),
            "seconds_per_run": round(sum(run.seconds for run in self.runs) / max(1, len(self.runs)), 2),
            **total.as_dict(),
        }

    def as_dict(self) -> dict[str, Any]:
        return {
            "commit": commit(),
            "summary": self.summary(),
            "late": [violation._asdict() for violation in self.late],
            "hits": self.hits(),
            "runs": [run.as_dict() for run in self.runs],
        }

    def write(self, path: Path) -> None:
        """All results so far, as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_dict(), indent=1) + "\n")


def commit() -> str:
    """The commit that is checked out here; with `+` where files were changed since."""
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True
    )
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def show(run: PointRun) -> None:
    """Print one run; how to repeat it if anything is wrong."""
    spec = run.spec
    line = f"{spec.seed:6d}  {run.verdict:8s} {run.seconds:5.1f} s  {spec.action:8s} {spec.point}"
    print(line, flush=True)
    for violation in run.violations[:8]:
        print(f"          {violation.kind} {violation.session} {violation.detail}")
    if run.trouble:
        print(f"          {run.trouble.splitlines()[0][:300]}")
    if run.verdict != "ok":
        print(f"          {spec.command}\n          evidence: {run.folder}", flush=True)


class Tier:
    """Runs specs in batches, `stacks` at a time; what did not count is tried again on a fresh stack."""

    def __init__(
        self, specs: list[Spec], folder: Path, *, mutant: str = "", stacks: int = 2, out: Path | None = None
    ) -> None:
        self.record = Record()
        self._waiting = [PointRun(spec) for spec in specs]
        self._folder = folder
        self._mutant = mutant
        self._stacks = stacks
        self._out = out
        self._lock = threading.Lock()
        self._number = itertools.count(1)
        self._halted = False

    def halt(self) -> None:
        """No run after those that are under way."""
        self._halted = True

    def _tell(self, run: PointRun) -> bool:
        show(run)
        return not self._halted

    def run(self, until: Callable[[Record], bool] = lambda _: False) -> Record:
        """All of them, or as many as it takes until `until` says so."""
        with ThreadPoolExecutor(self._stacks) as pool:
            for done in [pool.submit(self._work, until) for _ in range(self._stacks)]:
                done.result()
        return self.record

    def _work(self, until: Callable[[Record], bool]) -> None:
        while True:
            with self._lock:
                size = min(BATCH, -(-len(self._waiting) // self._stacks))
                taken, self._waiting = self._waiting[:size], self._waiting[size:]
                number = next(self._number)
                if not taken or until(self.record) or self._halted:
                    return
            began = time.monotonic()
            folder = (self._folder / f"batch-{number}").absolute()
            runs, late = run_batch([run.spec for run in taken], folder, self._mutant, self._tell)
            with self._lock:
                self._keep(taken, runs, late)
                took = time.monotonic() - began
                print(f"        batch {number}: {len(runs)} runs in {took:.0f} s", flush=True)
                for violation in late:
                    print(f"          {violation.kind} {violation.session} {violation.detail}", flush=True)
                if self._out:
                    self.record.write(self._out)

    def _keep(self, taken: list[PointRun], runs: list[PointRun], late: Iterable[Violation]) -> None:
        self.record.late += late
        for before, run in zip(taken, runs, strict=False):
            run.tries = before.tries
            if run.verdict == "invalid" and before.tries + 1 < TRIES:
                self.record.not_counted += 1
                self._waiting.append(again(run))
            else:
                self.record.runs.append(run)
        self._waiting += taken[len(runs) :]


def main(
    specs: list[Spec], folder: Path, *, mutant: str, stacks: int, out: Path | None, add: list[Path]
) -> int:
    """Exit status 0 if every run kept every promise, and counts.

    Args:
        add: results of earlier runs, to be counted too.
    """
    tier = Tier(specs, folder, mutant=mutant, stacks=max(1, min(stacks, len(specs))), out=out)
    for earlier in map(Record.read, add):
        tier.record.runs += earlier.runs
        tier.record.late += earlier.late
        tier.record.not_counted += earlier.not_counted
    signal.signal(signal.SIGTERM, lambda *_: tier.halt())
    record = tier.run()
    if out:
        record.write(out)
    print(json.dumps(record.summary(), indent=1))
    return 0 if not record.broken and all(run.verdict == "ok" for run in record.runs) else 1
