"""Child processes of the runner: a guard with the command below it, or a worker that runs a file tool.

    runner ── guard (one per command) ── command ── whatever it starts
          └── worker (one per file tool)

The guard is a child subreaper: whatever the command starts, also what leaves its process group or
daemonises, stays below the guard and dies with the call. When the runner dies the guard kills
everything; when the guard dies its orphans come to the runner, which kills them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import signal
import time
from typing import Any, Callable, NamedTuple, NoReturn

from fairlead_tools.runner import linux, terminals
from fairlead_tools.runner.failpoints import failpoint
from fairlead_tools.runner.restrict import OPEN, Restriction
from fairlead_tools.runner.user import User

GRACE_S = 2.0
STUCK_S = 10.0

_SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP})
_GATE_BYTES = 1024 * 1024
_READ_BYTES = 65_536

Order = dict[str, Any]


class Child(NamedTuple):
    """A child that waits at its gate for an order. When the gate is closed without one, it leaves.

    Fields:
        start: when it was started, in clock ticks since boot; tells it from a later process of this number.
        input: what is written here the command reads; -1 when it has nothing to read.
    """

    pid: int
    start: int
    gate: int
    output: int
    report: int
    input: int = -1

    def go(self, order: Order) -> None:
        """Let it do what the order says."""
        view = memoryview(json.dumps(order).encode("ascii"))
        while view:
            view = view[os.write(self.gate, view) :]
        os.close(self.gate)

    def abandon(self) -> None:
        """Close the gate for good: the child leaves without having done anything."""
        for fd in (self.gate, self.output, self.report, self.input):
            if fd >= 0:
                os.close(fd)


class Seat(NamedTuple):
    """What a command finds around it, as open files.

    Fields:
        user: who it runs as; its guard does not.
        work: does the order in the command's place when the order names a tool rather than a program.
        input: -1: nothing to read. terminal: output is a terminal, which is its input too.
    """

    cwd: int
    gate: int
    output: int
    report: int
    user: User | None
    work: Callable[[Order], Order] | None
    input: int = -1
    terminal: bool = False
    restriction: Restriction = OPEN

    @property
    def fds(self) -> set[int]:
        """All of them."""
        own = (self.cwd, self.gate, self.output, self.report, self.input, self.restriction.rules)
        return {fd for fd in own if fd >= 0}


class Report(NamedTuple):
    """What a guard says at the end.

    Fields:
        status: of the command, as waitpid gives it; None when it could not be killed.
        stopped: it ended after it was told to stop.
        killed: processes that the command had left behind.
    """

    status: int | None
    stopped: bool
    killed: int


def fork_command(
    cwd_fd: int,
    user: User | None = None,
    work: Callable[[Order], Order] | None = None,
    terminal: tuple[int, int] | None = None,
    *,
    has_input: bool = False,
    restriction: Restriction = OPEN,
) -> Child:
    """A guard, and below it a command that waits for its order: `argv` and `env`, or a `tool` for `work`.

    `output` carries what the command prints, on a `terminal` if there is one. With `user`, the command runs
    as that one, its guard does not.
    """
    gate_r, gate_w = _gate()
    report_r, report_w = os.pipe()
    input_r = input_w = -1
    if terminal:
        output_r, output_w = terminals.open_one(*terminal, user)
        input_w = os.dup(output_r)
    else:
        output_r, output_w = os.pipe()
        if has_input:
            input_r, input_w = _gate()
    seat = Seat(cwd_fd, gate_r, output_w, report_w, user, work, input_r, terminal is not None, restriction)
    failpoint("runner.fork.before")
    pid = _fork(lambda parent: _guard(parent, seat), restriction)
    failpoint("runner.fork.after")
    for fd in seat.fds - {cwd_fd, restriction.rules}:
        os.close(fd)
    return Child(pid, _start_of(pid), gate_w, output_r, report_r, input_w)


def fork_worker(
    work: Callable[[Order], Order], root_fd: int, user: User | None = None, restriction: Restriction = OPEN
) -> Child:
    """A process that waits for its order, does `work`, and writes the outcome to `report`."""
    gate_r, gate_w = _gate()
    report_r, report_w = os.pipe()
    pid = _fork(lambda parent: _worker(work, parent, gate_r, report_w, root_fd, user, restriction))
    os.close(gate_r)
    os.close(report_w)
    return Child(pid, _start_of(pid), gate_w, -1, report_r)


def _start_of(pid: int) -> int:
    found = linux.process(pid)
    return found.start if found else 0


def _gate() -> tuple[int, int]:
    gate_r, gate_w = os.pipe()
    # Room for a whole order, so that writing one does not wait for the reader.
    with contextlib.suppress(OSError):
        fcntl.fcntl(gate_w, linux.F_SETPIPE_SZ, _GATE_BYTES)
    return gate_r, gate_w


def read_report(data: bytes) -> tuple[Order | None, Report | None]:
    """What a tool in a command's place reported, and what its guard wrote; None: it was killed before."""
    result, _, end = data.rpartition(b"\0")
    report: Report | None = None
    done: Order | None = None
    with contextlib.suppress(ValueError, TypeError):
        report = Report(**json.loads(end))
    with contextlib.suppress(ValueError):
        done = json.loads(result)
    return done, report


def _fork(body: Callable[[int], None], restriction: Restriction = OPEN) -> int:
    _changed_signals()
    # Blocked before the fork, so that no signal falls between fork and the guard's first wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    parent = os.getpid()
    pid = restriction.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            body(parent)
        except BaseException:  # noqa: BLE001 - a forked child must never return into the runner's loop
            import traceback

            traceback.print_exc()
        finally:
            os._exit(70)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _close_all_but(keep: set[int]) -> None:
    """The runner's sockets must not live on in children: their peers would never see its end."""
    try:
        top = max(int(name) for name in os.listdir("/proc/self/fd"))
    except OSError:
        top = 4096
    low = 3
    for fd in sorted(keep):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, top + 1)


def _wait_at(gate: int) -> Order:
    """The order, once it is complete; the process leaves when there is none."""
    order = b"".join(iter(lambda: os.read(gate, _READ_BYTES), b""))
    if not order:
        os._exit(0)
    os.close(gate)
    made: Order = json.loads(order)
    return made


def _guard(parent: int, seat: Seat) -> NoReturn:
    os.setsid()
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGHUP)
    _close_all_but(seat.fds)
    if os.getppid() not in (parent, 0):  # 0: it is outside of our own process namespace
        os._exit(0)
    seat.restriction.enter_guard(seat.cwd)
    pid = os.fork()
    if pid == 0:
        _command(seat)
    for fd in seat.fds - {seat.report}:
        os.close(fd)
    if not seat.terminal:  # on a terminal it leads a session of its own
        with contextlib.suppress(OSError):  # it did so itself, or is gone
            os.setpgid(pid, pid)
    report = _watch(pid)
    failpoint("runner.guard.before")
    with contextlib.suppress(BrokenPipeError):  # the runner died: what it started is gone, and nobody asks
        os.write(seat.report, b"\0" + json.dumps(report._asdict()).encode("ascii") + b"\n")
    failpoint("runner.guard.after")
    os._exit(0)


def _command(seat: Seat) -> NoReturn:
    try:
        guard = os.getppid()
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        _take_streams(seat)
        for number in _changed_signals():
            signal.signal(number, signal.SIG_DFL)  # what is ignored stays so through exec
        order = _wait_at(seat.gate)
        failpoint("runner.command.before")
        _become(seat.user, guard, signal.SIGKILL)
        os.fchdir(seat.cwd)  # as that user: root without capabilities may not enter its folders
        seat.restriction.narrow()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if "argv" in order:
            argv = [os.fsencode(each) for each in order["argv"]]
            os.execve(argv[0], argv, order["env"])  # noqa: S606
        elif seat.work is not None:
            _report(seat.report, seat.work(order))
            os._exit(0)
    except OSError as error:
        os.write(2, f"could not start: {error.strerror}\n".encode())
    except Exception as error:  # noqa: BLE001 - a forked child must never return into the runner's loop
        os.write(2, f"the tool failed: {error!r}\n".encode("utf-8", "replace"))
    finally:
        os._exit(127)


@functools.cache
def _changed_signals() -> tuple[int, ...]:
    """The signals that this process does not treat as usual.

    Looked up once, before the first fork: to look costs a child a fifth of its time.
    """
    every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    return tuple(number for number in every if signal.getsignal(number) not in (signal.SIG_DFL, None))


def _take_streams(seat: Seat) -> None:
    """Standard input, output and error, in a process group (on a terminal: a session) of its own."""
    source = seat.input
    if seat.terminal:
        os.setsid()
        terminals.take(seat.output)
        source = seat.output
    else:
        os.setpgid(0, 0)
    if source < 0:
        source = os.open(os.devnull, os.O_RDONLY)
    os.dup2(source, 0)
    os.dup2(seat.output, 1)
    os.dup2(seat.output, 2)


def _report(fd: int, result: Order) -> None:
    view = memoryview(json.dumps(result).encode("ascii"))
    while view:
        view = view[os.write(fd, view) :]


def _become(user: User | None, parent: int, death_signal: int) -> None:
    """After the wait, not before it: until then nothing that runs as this user can kill or read us."""
    if user is None:
        return
    user.become()
    linux.prctl(linux.PR_SET_PDEATHSIG, death_signal)
    if os.getppid() != parent:
        os._exit(0)


def _watch(pid: int) -> Report:
    """Waits for the command, stops it when told to, and leaves nothing of it running."""
    status: int | None = None
    stopped = False
    kill_at: float | None = None
    while True:
        status = _reap(pid)
        if status is not None:
            break
        now = time.monotonic()
        if kill_at is not None and now >= kill_at:
            break
        got = signal.sigtimedwait(_SIGNALS, 3600.0 if kill_at is None else kill_at - now)
        if got is None or got.si_signo == signal.SIGCHLD:
            continue
        stopped = True
        if got.si_signo == signal.SIGTERM:
            _signal_group(pid, signal.SIGTERM)
            kill_at = kill_at or now + GRACE_S
        else:
            kill_at = now  # the runner died: nobody reads what the command would still say
    return _kill_rest(pid, status, stopped)


def _kill_rest(pid: int, status: int | None, stopped: bool) -> Report:
    killed: set[int] = set()
    end = time.monotonic() + STUCK_S
    while time.monotonic() < end:
        try:
            reaped, its_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break  # no child means no descendant: as subreaper, all of them end up here
        if reaped == pid:
            status = its_status
        if reaped:
            continue
        for each in linux.descendants({os.getpid()}, list(linux.processes())):
            linux.kill(each)
            killed.add(each.pid)
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)
    return Report(status, stopped, len(killed - {pid}))


def _reap(pid: int) -> int | None:
    """The command's status once it ended; orphans that ended are reaped on the way."""
    while True:
        try:
            reaped, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if reaped == pid:
            return status
        if reaped == 0:
            return None


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _worker(
    work: Callable[[Order], Order],
    parent: int,
    gate_r: int,
    report_w: int,
    root_fd: int,
    user: User | None,
    restriction: Restriction,
) -> NoReturn:
    os.setsid()
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _close_all_but({fd for fd in (gate_r, report_w, root_fd, restriction.rules) if fd >= 0})
    if os.getppid() != parent:
        os._exit(0)
    order = _wait_at(gate_r)
    _become(user, parent, signal.SIGKILL)
    restriction.narrow_worker()
    _report(report_w, work(order))
    os.write(report_w, b"\n")
    os._exit(0)
