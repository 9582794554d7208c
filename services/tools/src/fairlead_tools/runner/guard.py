"""Child processes of the runner: a guard with the command below it, or a worker that runs a file tool.

    runner ── guard ── command ── whatever it starts
          └── worker (one per file tool)

The guard is a child subreaper: whatever the command starts, also what leaves its process group or
daemonises, stays below the guard and dies with the call. When the runner dies the guard kills
everything; when the guard dies its orphans come to the runner, which kills them.

A command that runs as the guard's own user, bound by nothing else than the guard is, is spawned by it: to
fork this process and to take its memory down again costs more than a small command does. Any other one is a
fork that waits below the guard for its order, since it has to bind itself, or to become another user, on the
way. A fork dies with its guard; what was spawned is killed by the runner then, or by the next one.

A guard with a desk serves one command after another, never two at once. It says in its report whether it may
take another: no process of the last one is left, and no signal is pending. At its desk it says that it will:
its own limits, priority and processors are what they were. Without a desk it ends with its command: in
namespaces of its own, where nothing else is in reach of a command, or with a terminal or an input.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import resource
import signal
import time
from typing import Any, Callable, NamedTuple, NoReturn

from fairlead_tools.runner import desk, linux, terminals
from fairlead_tools.runner.failpoints import failpoint
from fairlead_tools.runner.restrict import OPEN, Restriction
from fairlead_tools.runner.user import User

GRACE_S = 2.0
STUCK_S = 10.0

_STOPS = frozenset({signal.SIGTERM, signal.SIGHUP})
SIGNALS = _STOPS | {signal.SIGCHLD}
_READ_BYTES = 65_536
_NOT_STARTED = 127 << 8  # as waitpid gives it, and as shells do
_LIMITS = tuple({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})

Order = dict[str, Any]


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
    def is_plain(self) -> bool:
        """Whether nothing is to be done in the command's process before the program is there."""
        return self.user is None and not self.terminal and self.restriction == OPEN

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
        again: it may take another command, for nothing is left of this one.
    """

    status: int | None
    stopped: bool
    killed: int
    again: bool = False


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


def run(parent: int, seat: Seat, own_desk: int) -> NoReturn:
    """Be a guard: of the command on this seat, and of those that come to the desk (-1: there is none)."""
    os.setsid()
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGHUP)
    _close_all_but((seat.fds | {own_desk}) - {-1})
    if os.getppid() not in (parent, 0):  # 0: it is outside of our own process namespace
        os._exit(0)
    seat.restriction.enter_guard(seat.cwd)
    # As its commands are to find it: what is ignored stays so through exec. What it waits for is blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    for number in changed_signals():
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if seat.is_plain:  # as its commands are to be
        os.fchdir(seat.cwd)
        seat.restriction.narrow()
    standing = _standing()
    while True:
        report = _serve(seat, own_desk)
        report = report._replace(again=report.again and own_desk >= 0)
        failpoint("runner.guard.before")
        with contextlib.suppress(BrokenPipeError):  # the runner died: what it started is gone, nobody asks
            os.write(seat.report, b"\0" + json.dumps(report._asdict()).encode("ascii") + b"\n")
        failpoint("runner.guard.after")
        if not report.again or _standing() != standing:  # not before the report: the call waits for that
            os._exit(0)
        os.close(seat.report)
        gate, output, its_report = desk.take(own_desk, 3)
        seat = seat._replace(gate=gate, output=output, report=its_report)


def _serve(seat: Seat, own_desk: int) -> Report:
    """From a command that waits for its order to where nothing of it is left."""
    order: Order = {}
    if seat.is_plain:
        order = _wait_at(seat.gate)
        seat = seat._replace(gate=-1)
    pid = _spawn(seat, order) if "argv" in order else _fork(seat, own_desk, order)
    kept = {seat.report, *((seat.cwd, seat.restriction.rules) if own_desk >= 0 else ())}
    for fd in seat.fds - kept:
        os.close(fd)
    return _watch(pid) if pid > 0 else Report(_NOT_STARTED, stopped=False, killed=0, again=True)


def _spawn(seat: Seat, order: Order) -> int:
    """The process that is the command already; 0 when it could not be started, which is said as output."""
    failpoint("runner.command.before")
    argv = [os.fsencode(each) for each in order["argv"]]
    streams = [(os.POSIX_SPAWN_DUP2, seat.output, fd) for fd in (1, 2)]
    if seat.input >= 0:  # else there is nothing to read, as for the guard
        streams.append((os.POSIX_SPAWN_DUP2, seat.input, 0))
    try:
        return os.posix_spawn(argv[0], argv, order["env"], file_actions=streams, setpgroup=0, setsigmask=())
    except OSError as error:
        _say(seat.output, error)
        return 0


def _fork(seat: Seat, own_desk: int, order: Order) -> int:
    """The process that will be the command, or do a tool's work."""
    guard = os.getpid()
    pid = os.fork()
    if pid == 0:
        if own_desk >= 0:
            os.close(own_desk)
        _command(seat, guard, order)
    if not seat.terminal:  # on a terminal it leads a session of its own
        with contextlib.suppress(OSError):  # it did so itself, or is gone
            os.setpgid(pid, pid)
    return pid


def _say(output: int, error: OSError) -> None:
    """Why there is no command, to who reads what it would have printed."""
    with contextlib.suppress(OSError):
        os.write(output, f"could not start: {error.strerror}\n".encode())


def _standing() -> tuple[object, ...]:
    """What commands inherit from this process, and a command of its user could have changed in it."""
    limits = [resource.getrlimit(kind) for kind in _LIMITS]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), os.sched_getscheduler(0)


def _command(seat: Seat, guard: int, order: Order) -> NoReturn:
    """Become the command, or do a tool's work in its place; wait for the order if it is empty."""
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # it died before we could ask to die with it
            os._exit(0)
        _take_streams(seat)
        if seat.user is None:  # what can be done before the order comes does not delay it
            _settle(seat)
        order = order or _wait_at(seat.gate)
        failpoint("runner.command.before")
        if seat.user is not None:
            _become(seat.user, guard, signal.SIGKILL)
            _settle(seat)
        if "argv" in order:
            argv = [os.fsencode(each) for each in order["argv"]]
            os.execve(argv[0], argv, order["env"])  # noqa: S606
        elif seat.work is not None:
            _report(seat.report, seat.work(order))
            os._exit(0)
    except OSError as error:
        _say(2, error)
    except Exception as error:  # noqa: BLE001 - a forked child must never return into the runner's loop
        os.write(2, f"the tool failed: {error!r}\n".encode("utf-8", "replace"))
    finally:
        os._exit(_NOT_STARTED >> 8)


def _settle(seat: Seat) -> None:
    """In the workspace, bound by what restricts commands, with no signal blocked."""
    os.fchdir(seat.cwd)  # as its user: root without capabilities may not enter its folders
    seat.restriction.narrow()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


@functools.cache
def changed_signals() -> tuple[int, ...]:
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
    if source >= 0:  # else there is nothing to read, as for the guard
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
        got = signal.sigtimedwait(SIGNALS, 3600.0 if kill_at is None else kill_at - now)
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
    is_clean = False
    end = time.monotonic() + STUCK_S
    while time.monotonic() < end:
        try:
            reaped, its_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            is_clean = True  # no child means no descendant: as subreaper, all of them end up here
            break
        if reaped == pid:
            status = its_status
        if reaped:
            continue
        for each in linux.descendants({os.getpid()}, list(linux.processes())):
            linux.kill(each)
            killed.add(each.pid)
        signal.sigtimedwait({signal.SIGCHLD}, 0.02)
    # What the command sent us in its last moment must not stop the next one.
    again = is_clean and status is not None and not stopped and not signal.sigpending() & _STOPS
    return Report(status, stopped, len(killed - {pid}), again)


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


def work_once(
    work: Callable[[Order], Order],
    parent: int,
    gate_r: int,
    report_w: int,
    root_fd: int,
    user: User | None,
    restriction: Restriction,
) -> NoReturn:
    """Be a worker: do `work` for one order, and leave."""
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
