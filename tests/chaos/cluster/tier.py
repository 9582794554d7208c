"""The cluster tier: three nats-servers that replicate, cut off from each other and killed, under load.

python -m tests.chaos.run --tier r3 --runs 50 --out bench/results/chaos-r3.json
python -m tests.chaos.run --tier r3 --seed 7 --only bridge --keep
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
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
RUN_LIMIT_S: Final = 170.0


@dataclass
class ClusterRun(single.Run):
    """What came of one seed.

    Fields:
        gaps: how long writes waited while a majority was connected.
        probes: how many writes of the probe were acknowledged.
    """

    gaps: Gaps = Gaps({}, {})  # noqa: RUF009 - it cannot be changed
    probes: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            **super().as_dict(),
            "probes": self.probes,
            "gap_s": {stream: round(gap, 2) for stream, gap in self.gaps.connected.items()},
            "steady_gap_s": {stream: round(gap, 2) for stream, gap in self.gaps.steady.items()},
        }


def run_seed(
    seed: int,
    *,
    root: Path = EVIDENCE,
    seconds: float = SECONDS,
    only: Sequence[str] = (),
    keep: bool = False,
) -> ClusterRun:
    """One run, judged. Its folder stays when something is wrong with it."""
    began = time.monotonic()
    folder = (root / f"seed-{seed}").absolute()
    for place in (folder, Path(f"{folder}-nats")):
        shutil.rmtree(place, ignore_errors=True)
    folder.mkdir(parents=True)
    run = ClusterRun(seed, 0.0, folder=str(folder))
    with Network() as network:
        run.trouble = _run_inside(network, folder, seed, seconds, only)
    if (folder / "world.json").exists():
        evidence = load(folder)
        run.numbers, run.violations = measure(evidence), judge(evidence)
        world = json.loads((folder / "world.json").read_text())
        run.violations += [Violation(**each) for each in world["probe"]]
        run.gaps = gaps(folder)
        run.probes = sum(1 for record in read_lines(folder / "probe.jsonl") if record["event"] == "ok")
        for stream, gap in run.gaps.connected.items():
            if gap > LIMIT_S:
                run.violations.append(Violation("UNAVAILABLE", stream, f"no write was taken for {gap:.1f} s"))
    run.seconds = time.monotonic() - began
    if run.verdict == "ok" and not keep:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(f"{folder}-nats", ignore_errors=True)
    else:
        (folder / "result.json").write_text(json.dumps(run.as_dict(), indent=1))
    return run


def _run_inside(network: Network, folder: Path, seed: int, seconds: float, only: Sequence[str]) -> str:
    """What went wrong with the run itself; empty if nothing did."""
    words = [sys.executable, "-m", "tests.chaos.cluster.inside", network.prefix, str(folder)]
    with (folder / "inside.log").open("wb") as out:
        child = subprocess.Popen(
            [*network.words(SERVICES), *words, str(seed), str(seconds), *only], stdout=out, stderr=out
        )
        try:
            status = child.wait(timeout=RUN_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.terminate()
            child.wait(timeout=60)
            return f"not over within {RUN_LIMIT_S:.0f} s"
        except BaseException:
            child.terminate()
            child.wait(timeout=60)
            raise
    if status == 0:
        return ""
    lines = (folder / "inside.log").read_text(errors="replace").strip().splitlines()
    return f"status {status}: {lines[-1] if lines else 'nothing was said'}"


def summary(runs: list[ClusterRun]) -> dict[str, Any]:
    """All counted runs together."""
    counted = [run for run in runs if run.valid or run.violations]
    longest = [run.gaps.longest for run in counted]
    steady = [run.gaps.longest_steady for run in counted]
    return {
        **single.summary([*runs]),
        "probes": sum(run.probes for run in counted),
        "longest_gap_s": {"p50": percentile(longest, 50), "max": round(max(longest, default=0.0), 2)},
        "longest_steady_gap_s": {"p50": percentile(steady, 50), "max": round(max(steady, default=0.0), 2)},
    }


def main(
    seeds: Sequence[int], *, seconds: float | None, only: Sequence[str], keep: bool, out: Path | None
) -> int:
    """Exit status 0 if every run kept every promise and counts."""
    print(single.header() + "   gap s  steady", flush=True)
    runs: list[ClusterRun] = []
    for seed in seeds:
        run = run_seed(seed, seconds=seconds or SECONDS, only=only, keep=keep)
        runs.append(run)
        single.tell(run, f"{run.gaps.longest:8.1f}{run.gaps.longest_steady:8.1f}")
        if out:
            out.parent.mkdir(parents=True, exist_ok=True)
            result = {"summary": summary(runs), "runs": [each.as_dict() for each in runs]}
            out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(summary(runs), indent=1))
    return 0 if all(run.verdict == "ok" for run in runs) else 1
