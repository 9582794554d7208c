"""What a process uses, and limits that are set while it runs."""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path


def cpu_s(pid: int) -> float:
    """Processor time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_rss_mib(pid: int) -> float:
    """The most memory that it had at once, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} tells no VmHWM")


def forget_peak(pid: int) -> None:
    """Count the peak from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def limit_files(pid: int, limit: int) -> None:
    """Let it have descriptors below `limit`; the hard limit stays."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, hard))


def leave_files(pid: int, spare: int) -> None:
    """Let it open so many descriptors more."""
    used = {int(each) for each in os.listdir(f"/proc/{pid}/fd")}
    free = (number for number in range(1 << 20) if number not in used)
    for _ in range(spare):
        next(free)
    limit_files(pid, next(free))


@contextlib.contextmanager
def no_descriptors(spare: int = 0) -> Iterator[None]:
    """This process, the one of the tests, can open so many more and no others."""
    usual, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit_files(os.getpid(), 1 + max(int(each) for each in os.listdir("/proc/self/fd")))
    held: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        for _ in range(spare):
            os.close(held.pop())
        yield
    finally:
        limit_files(os.getpid(), usual)
        for each in held:
            os.close(each)


def children(pid: int) -> list[int]:
    """Direct children."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
