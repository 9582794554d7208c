"""The cluster tier: three nats-servers that replicate, cut off from each other and killed, under load.

python -m tests.chaos.run --tier r3 --runs 50 --out bench/results/chaos-r3.json
python -m tests.chaos.run --tier r3 --seed 7 --only bridge --keep
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.chaos import run as single
from tests.chaos.cluster.availability import LIMIT_S, Gaps, gaps
from tests.chaos.cluster.network import SERVICES, Network
from tests.chaos.evidence import load, read_lines
from tests.chaos.measure import measure, percentile
from tests.chaos.oracle import Violation, judge

EVIDENCE: Final = Path("tests/_evidence/cluster")
SECONDS: Final = 13.0
RUN_LIMIT_S: Final = 240.0
BLOCK: Final = 10  # runs on one stack
TRIES: Final = 3  # to bring it up


@dataclass
class ClusterRun(single.Run):
    """What came of one seed.

    Fields:
        gaps: how long writes waited while a majority was connected.
        probes: how many writes of the probe were acknowledged.
    """

    gaps: Gaps = Gaps({}, {})  # noqa: RUF009 - it cannot be changed
    probes: int = 0

    @property
    def began(self) -> bool:
        """Whether its stack came up."""
        return self.probes > 0

    def as_dict(self) -> dict[str, Any]:
        return {
            **super().as_dict(),
            "probes": self.probes,
            "gap_s": {stream: round(gap, 2) for stream, gap in self.gaps.connected.items()},
            "steady_gap_s": {stream: round(gap, 2) for stream, gap in self.gaps.steady.items()},
        }


def run_block(
    seeds: Sequence[int],
    *,
    root: Path = EVIDENCE,
    seconds: float = SECONDS,
    only: Sequence[str] = (),
    keep: bool = False,
) -> Iterator[ClusterRun]:
    """Runs on one stack, each judged as soon as it is over. The folder of one with something wrong stays."""
    root = root.absolute()
    for seed in seeds:
        shutil.rmtree(root / f"seed-{seed}", ignore_errors=True)
        (root / f"seed-{seed}").mkdir(parents=True)
    log = root / f"inside-{seeds[0]}.log"
    words = [sys.executable, "-m", "tests.chaos.cluster.inside"]
    with Network() as network, log.open("wb") as out:
        arguments = [network.prefix, str(root), str(seconds), ",".join(only), *map(str, seeds)]
        child = subprocess.Popen([*network.words(SERVICES), *words, *arguments], stdout=out, stderr=out)
        wrong = False
        try:
            for seed in seeds:
                began = time.monotonic()
                # A run is judged when the next one goes on; the last one once the stack has stopped.
                awaited = f"seed {seed} is over" if seed != seeds[-1] else "over"
                trouble = _await(child, log, awaited)
                run = _judged(seed, root / f"seed-{seed}", trouble, time.monotonic() - began)
                wrong = wrong or run.verdict != "ok"
                if run.verdict == "ok" and not keep:
                    shutil.rmtree(run.folder)
                yield run
                if child.poll() is not None:
                    break
            else:
                child.wait(timeout=60)  # it ends what it started
        finally:
            if child.poll() is None:
                child.terminate()
            child.wait(timeout=60)
    if not wrong and not keep:
        for place in (root / f"stack-{seeds[0]}", root / f"nats-{seeds[0]}"):
            shutil.rmtree(place, ignore_errors=True)


def _judged(seed: int, folder: Path, trouble: str, seconds: float) -> ClusterRun:
    run = ClusterRun(seed, seconds, folder=str(folder), trouble=trouble)
    if (folder / "world.json").exists():
        evidence = load(folder)
        run.numbers, run.violations = measure(evidence), judge(evidence)
        world = json.loads((folder / "world.json").read_text())
        run.violations += [Violation(**each) for each in world["probe"]]
        run.gaps = gaps(folder)
        run.probes = sum(1 for record in read_lines(folder / "probe.jsonl") if record["event"] == "ok")
        for stream, gap in run.gaps.steady.items():
            if gap > LIMIT_S:
                run.violations.append(Violation("UNAVAILABLE", stream, f"no write was taken for {gap:.1f} s"))
    (folder / "result.json").write_text(json.dumps(run.as_dict(), indent=1))
    return run


def _await(child: "subprocess.Popen[bytes]", log: Path, line: str) -> str:
    """Until the child printed the line; what went wrong, or nothing."""
    deadline = time.monotonic() + RUN_LIMIT_S
    while time.monotonic() < deadline:
        ended = child.poll() is not None
        lines = log.read_text(errors="replace").splitlines()
        if line in lines:
            return ""
        if ended:
            return f"status {child.returncode}: {lines[-1] if lines else 'nothing was said'}"
        time.sleep(0.1)
    child.terminate()
    return f"not over within {RUN_LIMIT_S:.0f} s"


def summary(runs: list[ClusterRun]) -> dict[str, Any]:
    """All counted runs together."""
    counted = [run for run in runs if run.valid or run.violations]
    longest = [run.gaps.longest for run in counted]
    steady = [run.gaps.longest_steady for run in counted]
    return {
        **single.summary([*runs]),
        "probes": sum(run.probes for run in counted),
        "gaps_over_limit": sum(1 for gap in longest if gap > LIMIT_S),
        "longest_gap_s": {"p50": percentile(longest, 50), "max": round(max(longest, default=0.0), 2)},
        "longest_steady_gap_s": {"p50": percentile(steady, 50), "max": round(max(steady, default=0.0), 2)},
    }


def main(
    seeds: Sequence[int], *, seconds: float | None, only: Sequence[str], keep: bool, out: Path | None
) -> int:
    """Exit status 0 if every run kept every promise and counts."""
    print(single.header() + "   gap s  steady", flush=True)
    runs: list[ClusterRun] = []
    left = list(seeds)
    tries = TRIES
    while left:
        for run in run_block(left[:BLOCK], seconds=seconds or SECONDS, only=only, keep=keep):
            if not run.began and (tries := tries - 1):
                break  # the stack did not come up on a busy machine
            tries = TRIES
            left.remove(run.seed)
            runs.append(run)
            single.tell(run, f"{run.gaps.longest:8.1f}{run.gaps.longest_steady:8.1f}")
            if out:
                out.parent.mkdir(parents=True, exist_ok=True)
                result = {"summary": summary(runs), "runs": [each.as_dict() for each in runs]}
                out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(summary(runs), indent=1))
    return 0 if all(run.verdict == "ok" for run in runs) else 1
