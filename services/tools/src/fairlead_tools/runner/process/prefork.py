"""Children that wait for the calls to come: making one is most of what a command costs.

Where a guard makes it, that is a moment after a call ended: what brings its result on, in other processes,
goes first, and a call that comes sooner loses little. What the runner forks itself is made at once.
Guards of commands that ran side by side stay for a while: the next such commands need no new ones.
"""

from __future__ import annotations

import contextlib
import os
import time

from fairlead_tools.runner.confinement.restrict import Restriction
from fairlead_tools.runner.confinement.user import User
from fairlead_tools.runner.confinement.workspace_root import Root
from fairlead_tools.runner.outcome import Outcome
from fairlead_tools.runner.plan import Plan, run_tool
from fairlead_tools.runner.process import children
from fairlead_tools.runner.process.children import Child
from fairlead_tools.runner.process.command_launch import Order
from fairlead_tools.runner.process.running_call import RunningCall

PAUSE_S = 0.005
KEEP_S = 5.0  # guards beside the one whose next command waits; some 2 MB each (PSS)
MOST_KEPT = 32


class Prefork:
    """At most one of each kind, once that kind was used: for commands (True) and for file tools.

    And guards that are idle: each takes another command when there is one.
    """

    def __init__(self, root: Root, user: User | None, restriction: Restriction) -> None:
        self._root = root
        self._user = user
        self._restriction = restriction
        self._waiting: dict[bool, Child] = {}
        self._idle: list[Child] = []  # the last one was used last
        self._idle_until = 0.0
        self._leaving: set[int] = set()  # guards that were let go, until they are dead
        self._used: set[bool] = set()
        self._due = 0.0

    @property
    def pids(self) -> set[int]:
        """Their process ids."""
        return {each.pid for each in (*self._waiting.values(), *self._idle)} | self._leaving

    @property
    def next_tick(self) -> float:
        """When `prepare` is due."""
        never = float("inf")
        return min(self._due if self._used else never, self._idle_until if self._idle else never)

    def take(self, plan: Plan) -> Child:
        """One that waits for this plan's order; who has an input or a terminal is made for it.

        Raises:
            OSError: there is no room for another process.
        """
        if plan.life.is_plain:
            return self._take(plan.is_command) or self._again(plan.is_command) or self._fork(plan.is_command)
        made = children.fork_command(
            self._root.fd,
            self._user,
            None,
            plan.life.terminal,
            has_input=True,
            restriction=self._restriction,
        )
        os.set_blocking(made.input, False)
        return made

    def ended(self, job: RunningCall) -> None:
        """Keep the guard of a command that ended, or let it go; never one that was told to stop something."""
        self._used.add(job.output is not None)
        self._due = time.monotonic() + (PAUSE_S if job.child.desk >= 0 else 0.0)
        if job.child.desk < 0:
            return
        if job.guard_is_free and len(self._idle) < MOST_KEPT:
            self._idle.append(job.child)
            self._idle_until = time.monotonic() + KEEP_S
        else:
            self._let_go(job.child)

    def prepare(self, dead: set[int]) -> None:
        """Have a child of each kind that was used waiting for the next call, if that is due.

        Guards that were idle for long are let go.
        """
        self._part_with(dead)
        now = time.monotonic()
        if now >= self._due:
            for is_command in self._used - self._waiting.keys():
                # Without memory for a spare the next call will say so.
                with contextlib.suppress(OSError):
                    if is_command and self._idle:
                        self._waiting[True] = self._idle.pop().again()
                    else:
                        self._waiting[is_command] = self._fork(is_command)
            self._used.clear()
        while self._idle and now >= self._idle_until:
            self._let_go(self._idle.pop())

    def _part_with(self, dead: set[int]) -> None:
        self._leaving -= dead
        for idle in [each for each in self._idle if each.pid in dead]:
            self._idle.remove(idle)
            os.close(idle.desk)
        for is_command, spare in list(self._waiting.items()):
            if spare.pid in dead:
                del self._waiting[is_command]
                spare.abandon()

    def _take(self, is_command: bool) -> Child | None:
        spare = self._waiting.pop(is_command, None)
        if spare is not None and not spare.waits():
            spare.abandon()  # it was killed a moment ago
            return None
        return spare

    def _again(self, is_command: bool) -> Child | None:
        """A child of a guard that is idle, if there is one."""
        while is_command and self._idle:
            with contextlib.suppress(OSError):  # it was killed a moment ago, or there is no room
                child = self._idle.pop().again()
                self._used.discard(True)  # when this one ends its guard is idle again
                return child
        return None

    def _fork(self, is_command: bool) -> Child:
        if not is_command:
            return children.fork_worker(self._work, self._root.fd, self._user, self._restriction)
        # In namespaces of its own a guard is in reach of nobody but its command, which may leave it limits
        # or a low priority: it serves that one only.
        return children.fork_command(
            self._root.fd,
            self._user,
            self._work,
            restriction=self._restriction,
            again=not self._restriction.hidden,
        )

    def _let_go(self, child: Child) -> None:
        os.close(child.desk)
        with contextlib.suppress(ChildProcessError):  # it was killed, and is buried already
            if os.waitpid(child.pid, os.WNOHANG) == (0, 0):
                self._leaving.add(child.pid)

    def _work(self, order: Order) -> Outcome:
        return run_tool(order, self._root)
