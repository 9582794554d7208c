"""What the runner knows of its children: how they are made, given an order, and what they report."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
from collections.abc import Iterator
from typing import Callable, NamedTuple, NoReturn

from fairlead_tools.runner import linux
from fairlead_tools.runner.confinement.restrict import OPEN, Restriction
from fairlead_tools.runner.confinement.user import User
from fairlead_tools.runner.failpoints import failpoint
from fairlead_tools.runner.process import command_supervisor, fd_handoff, terminals, worker
from fairlead_tools.runner.process.command_launch import Order, Seat
from fairlead_tools.runner.process.command_supervisor import Report

_GATE_BYTES = 1024 * 1024


class Child(NamedTuple):
    """A child that waits at its gate for an order. When the gate is closed without one, it leaves.

    Fields:
        start: when it was started, in clock ticks since boot; tells it from a later process of this number.
        input: what is written here the command reads; -1 when it has nothing to read.
        desk: where its guard gets the next command's pipes; -1 when it serves only one.
    """

    pid: int
    start: int
    gate: int
    output: int
    report: int
    input: int = -1
    desk: int = -1

    def go(self, order: Order) -> None:
        """Let it do what the order says."""
        view = memoryview(json.dumps(order).encode("ascii"))
        while view:
            view = view[os.write(self.gate, view) :]
        os.close(self.gate)

    def waits(self) -> bool:
        """Whether it still does. A guard whose command was killed at the gate has reported that."""
        if os.waitpid(self.pid, os.WNOHANG) != (0, 0):
            return False
        poll = select.poll()
        poll.register(self.report, select.POLLIN)
        return not poll.poll(0)

    def abandon(self) -> None:
        """Close the gate for good: the child leaves without having done anything."""
        for fd in (self.gate, self.output, self.report, self.input, self.desk):
            if fd >= 0:
                os.close(fd)

    def again(self) -> Child:
        """The same guard with another command that waits; the last one's pipes are closed by now.

        Raises:
            OSError: the guard is gone, or there is no room for more pipes. It leaves.
        """
        with _closed_in_vain() as fds:
            fds.append(self.desk)
            gate_r, gate_w = _kept(_gate(), fds)
            output_r, output_w = _kept(os.pipe(), fds)
            report_r, report_w = _kept(os.pipe(), fds)
            failpoint("runner.fork.before")
            fd_handoff.hand_over(self.desk, [gate_r, output_w, report_w])
            failpoint("runner.fork.after")
        for fd in (gate_r, output_w, report_w):
            os.close(fd)
        return self._replace(gate=gate_w, output=output_r, report=report_r)


def fork_command(
    cwd_fd: int,
    user: User | None = None,
    work: Callable[[Order], Order] | None = None,
    terminal: tuple[int, int] | None = None,
    *,
    has_input: bool = False,
    restriction: Restriction = OPEN,
    again: bool = False,
) -> Child:
    """A guard, and below it a command that waits for its order: `argv` and `env`, or a `tool` for `work`.

    `output` carries what the command prints, on a `terminal` if there is one. With `user`, the command runs
    as that one, its guard does not. With `again`, the guard can be given another command afterwards.

    Raises:
        OSError: there is no room for another process or its pipes; nothing is left of it.
    """
    input_r = input_w = ours = theirs = -1
    with _closed_in_vain() as fds:
        gate_r, gate_w = _kept(_gate(), fds)
        report_r, report_w = _kept(os.pipe(), fds)
        if terminal:
            output_r, output_w = _kept(terminals.open_one(*terminal, user), fds)
            input_w = os.dup(output_r)
            fds.append(input_w)
        else:
            output_r, output_w = _kept(os.pipe(), fds)
            if has_input:
                input_r, input_w = _kept(_gate(), fds)
        seat = Seat(
            cwd_fd, gate_r, output_w, report_w, user, work, input_r, terminal is not None, restriction
        )
        if again:
            ours, theirs = _kept(fd_handoff.open_desk(), fds)
        failpoint("runner.fork.before")
        pid = _fork(lambda parent: command_supervisor.run(parent, seat, theirs), restriction)
        failpoint("runner.fork.after")
    for fd in (seat.fds | {theirs}) - {cwd_fd, restriction.rules, -1}:
        os.close(fd)
    return Child(pid, _start_of(pid), gate_w, output_r, report_r, input_w, ours)


def fork_worker(
    work: Callable[[Order], Order], root_fd: int, user: User | None = None, restriction: Restriction = OPEN
) -> Child:
    """A process that waits for its order, does `work`, and writes the outcome to `report`.

    Raises:
        OSError: there is no room for another process or its pipes; nothing is left of it.
    """
    with _closed_in_vain() as fds:
        gate_r, gate_w = _kept(_gate(), fds)
        report_r, report_w = _kept(os.pipe(), fds)
        pid = _fork(
            lambda parent: worker.work_once(work, parent, gate_r, report_w, root_fd, user, restriction)
        )
    os.close(gate_r)
    os.close(report_w)
    return Child(pid, _start_of(pid), gate_w, -1, report_r)


@contextlib.contextmanager
def _closed_in_vain() -> Iterator[list[int]]:
    """Files for a child, which are closed when there will be none."""
    fds: list[int] = []
    try:
        yield fds
    except OSError:
        for fd in fds:
            os.close(fd)
        raise


def _kept(pair: tuple[int, int], fds: list[int]) -> tuple[int, int]:
    fds += pair
    return pair


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
    command_supervisor.changed_signals()
    # Blocked before the fork, so that no signal falls between fork and the guard's first wait.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, command_supervisor.SIGNALS)
    parent = os.getpid()
    try:
        pid = restriction.fork()
        if pid == 0:
            _be(body, parent)
    finally:  # also when there is no room for another process
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return pid


def _be(body: Callable[[int], None], parent: int) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        body(parent)
    except BaseException:  # noqa: BLE001 - a forked child must never return into the runner's loop
        import traceback

        traceback.print_exc()
    finally:
        os._exit(70)
