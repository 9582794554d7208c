"""What the processes of one Fairlead cost: CPU from /proc/<pid>/stat, memory from smaps_rollup."""

import os
import platform
import shutil
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import psutil

from tests.chaos.stack import Stack

_TICKS = os.sysconf("SC_CLK_TCK")
Costs = dict[str, float]


def processes(stack: Stack) -> dict[int, str]:
    """The processes of a stack by number, named by service; `runner` is what tools start."""
    assert stack.up is not None
    named = {pid: name.partition("-")[0] for name, pid in stack.services().items()}
    if stack.up.process is not None:
        named[stack.up.process.pid] = "up"
    for process in stack.ours():
        named.setdefault(process.pid, "runner")
    return named


def cpu_ms(stack: Stack) -> Costs:
    """CPU milliseconds that each service has used, children that ended included."""
    used: Costs = defaultdict(float)
    for pid, name in processes(stack).items():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        counted = fields[11:15] if name == "runner" else fields[11:13]
        used[name] += sum(int(ticks) for ticks in counted) * 1000 / _TICKS
    return dict(used)


def spent(before: Costs, after: Costs, count: int) -> Costs:
    """CPU milliseconds of each service per one of `count`, and their sum as `all`."""
    costs = {name: round((after[name] - before.get(name, 0.0)) / count, 3) for name in sorted(after)}
    return {"all": round(sum(costs.values()), 3), **costs}


def memory_mb(stack: Stack) -> dict[str, Costs]:
    """PSS and RSS of each service in MB, with their sums as `all`."""
    pss: Costs = defaultdict(float)
    rss: Costs = defaultdict(float)
    for pid, name in processes(stack).items():
        try:
            info = psutil.Process(pid).memory_full_info()
        except psutil.Error:
            continue
        pss[name] += info.pss / 1e6
        rss[name] += info.rss / 1e6
    return {
        kind: {"all": round(sum(values.values()), 1)} | {k: round(v, 1) for k, v in sorted(values.items())}
        for kind, values in (("pss", pss), ("rss", rss))
    }


def about() -> dict[str, object]:
    """The machine, as far as it matters for numbers."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


class Profiler:
    """Samples every Python service with py-spy while something runs; nothing when it is not installed."""

    def __init__(self, stack: Stack, folder: Path | None) -> None:
        self._stack = stack
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Profiler":
        program = shutil.which("py-spy")
        if self._folder is None:
            return self
        assert program, "--profile wants py-spy on PATH"
        self._folder.mkdir(parents=True, exist_ok=True)
        for name, pid in self._stack.services().items():
            if name != "nats":
                out = self._folder / f"{name}.txt"
                words = [
                    program,
                    "record",
                    "-r",
                    "200",
                    "-d",
                    "600",
                    "-f",
                    "raw",
                    "-o",
                    str(out),
                    "-p",
                    str(pid),
                ]
                quiet = subprocess.DEVNULL
                self._running.append(subprocess.Popen(words, stdout=quiet, stderr=quiet))
        time.sleep(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.send_signal(2)
        for process in self._running:
            process.wait(timeout=30)
