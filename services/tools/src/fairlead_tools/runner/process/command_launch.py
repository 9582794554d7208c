"""A command's seat: what it finds around it, and how it comes to sit there, once its order is known.

Where nothing binds it beyond its guard, the guard waits for the order and spawns the program: to fork that
process and to take its memory down again costs more than a small command does. Else a fork waits below the
guard, since it has to bind itself, or to become another user, on the way. A fork dies with its guard; what
was spawned is killed by the runner then, or by the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any, Callable, NamedTuple, NoReturn

from fairlead_tools.runner import linux
from fairlead_tools.runner.confinement.restrict import OPEN, Restriction
from fairlead_tools.runner.confinement.user import User
from fairlead_tools.runner.failpoints import failpoint
from fairlead_tools.runner.process import terminals

NOT_STARTED = 127 << 8  # as waitpid gives it, and as shells do

_READ_BYTES = 65_536

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


def start(seat: Seat, own_desk: int) -> tuple[int, Seat]:
    """The process that is or will be the command, and the seat without what was used up by then.

    0: it could not be started, which is said as its output.

    Args:
        own_desk: of the guard, which the command must not have; -1: there is none.
    """
    if not seat.is_plain:
        return _fork(seat, own_desk, {}), seat
    order = wait_at(seat.gate)
    seat = seat._replace(gate=-1)
    return (_spawn(seat, order) if "argv" in order else _fork(seat, own_desk, order)), seat


def wait_at(gate: int) -> Order:
    """The order, once it is complete; the process leaves when there is none."""
    order = b"".join(iter(lambda: os.read(gate, _READ_BYTES), b""))
    if not order:
        os._exit(0)
    os.close(gate)
    made: Order = json.loads(order)
    return made


def hand_in(fd: int, result: Order) -> None:
    """Write all of what came of an order."""
    view = memoryview(json.dumps(result).encode("ascii"))
    while view:
        view = view[os.write(fd, view) :]


def become(user: User | None, parent: int) -> None:
    """After the wait, not before it: until then nothing that runs as this user can kill or read us."""
    if user is None:
        return
    user.become()
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


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


def _command(seat: Seat, guard: int, order: Order) -> NoReturn:
    """Become the command, or do a tool's work in its place; wait for the order if it is empty."""
    try:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:  # it died before we could ask to die with it
            os._exit(0)
        _take_streams(seat)
        if seat.user is None:  # what can be done before the order comes does not delay it
            _settle(seat)
        order = order or wait_at(seat.gate)
        failpoint("runner.command.before")
        if seat.user is not None:
            become(seat.user, guard)
            _settle(seat)
        if "argv" in order:
            argv = [os.fsencode(each) for each in order["argv"]]
            os.execve(argv[0], argv, order["env"])  # noqa: S606
        elif seat.work is not None:
            hand_in(seat.report, seat.work(order))
            os._exit(0)
    except OSError as error:
        _say(2, error)
    except Exception as error:  # noqa: BLE001 - a forked child must never return into the runner's loop
        os.write(2, f"the tool failed: {error!r}\n".encode("utf-8", "replace"))
    finally:
        os._exit(NOT_STARTED >> 8)


def _settle(seat: Seat) -> None:
    """In the workspace, bound by what restricts commands, with no signal blocked."""
    os.fchdir(seat.cwd)  # as its user: root without capabilities may not enter its folders
    seat.restriction.narrow()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


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


def _say(output: int, error: OSError) -> None:
    """Why there is no command, to who reads what it would have printed."""
    with contextlib.suppress(OSError):
        os.write(output, f"could not start: {error.strerror}\n".encode())
