"""A worker: a child of the runner that does one file tool, and leaves."""

from __future__ import annotations

import os
import signal
from typing import Callable, NoReturn

from fairlead_tools.runner import linux, seats
from fairlead_tools.runner.restrict import Restriction
from fairlead_tools.runner.seats import Order
from fairlead_tools.runner.user import User


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
    linux.close_all_but({fd for fd in (gate_r, report_w, root_fd, restriction.rules) if fd >= 0})
    if os.getppid() != parent:
        os._exit(0)
    order = seats.wait_at(gate_r)
    seats.become(user, parent)
    restriction.narrow_worker()
    seats.hand_in(report_w, work(order))
    os.write(report_w, b"\n")
    os._exit(0)
