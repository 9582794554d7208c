"""Fail-points: named places where a test kills, stops or deafens the process that passes by.

Only with `FAIRLEAD_TEST=1` and `FAIRLEAD_FAILPOINTS=<folder>`. Otherwise passing a point is one look at
`_folder`, which is None.

    <folder>/<point>    armed: `<action> <n>`, for the n-th that passes from now on, whichever process it is
    <folder>/landed     a line of JSON for each hit, on the disk before the action

Whoever takes an armed point renames its file, so one process alone acts on it, and a process that is started
again does not. The runner, which has the standard library only, has a twin of this (`runner/failpoints.py`).
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

KILL: Final = "kill"  # SIGKILL to itself
STOP: Final = "stop"  # SIGSTOP to itself; the test lets it go on
DROP_ACK: Final = "drop_ack"  # what was published is stored, its acknowledgement is lost


class FailpointStep(NamedTuple):
    """Something that a crash may cut off; it has a point before it and one after it.

    Fields:
        says: what happens there.
        acknowledged: it is a write that the server answers, so the answer can be lost.
        may_be_unknown: at these moments, who dies may leave a command of which nobody can tell what it did.
        moments: of the points, where there are not both; `why` there are not.
    """

    says: str
    acknowledged: bool = False
    may_be_unknown: tuple[str, ...] = ()
    moments: tuple[str, ...] = ("before", "after")
    why: str = ""


def _write(says: str) -> FailpointStep:
    return FailpointStep(says, acknowledged=True)


def _work(says: str) -> FailpointStep:
    return FailpointStep(says)


def _command(says: str) -> FailpointStep:
    return FailpointStep(says, may_be_unknown=("before", "after"))


STEPS: Final[Mapping[str, FailpointStep]] = {
    # What people ask for is stored, then accepted.
    "gateway.session": _write("the notice that creates a session is stored"),
    "gateway.prompt": _write("a prompt is stored; then comes the 202"),
    "gateway.steer": _write("a steer is stored"),
    "gateway.followup": _write("a follow-up is stored"),
    "gateway.abort": _write("the wish to stop is stored"),
    "gateway.approval": _write("a decision is stored"),
    "gateway.update": _write("new settings of a session are stored"),
    "gateway.delete": _write("the wish to delete a session is stored"),
    "objects.put": _work("an attachment goes to the object store"),
    # The log of a session, by the type of the entry.
    "agent.log.session_info": _write("settings of a session are in its log"),
    "agent.log.mode_change": _write("a new mode is in the log"),
    "agent.log.run_start": _write("a run begins"),
    "agent.log.together": _write("a run begins with what a person said, in one record"),
    "agent.log.user": _write("what a person said is in the log, and consumed from the mailbox"),
    "agent.log.queued": _write("what came while a run went on is in the log"),
    "agent.log.assistant": _write("the model's answer is in the log, before any of its calls is made"),
    "agent.log.tool_result": _write("the result of a call is in the log"),
    "agent.log.approval_request": _write("a person is asked"),
    "agent.log.approval": _write("what the person said is in the log"),
    "agent.log.custom": _write("a mark is in the log: an abort, a system event, a handover"),
    "agent.log.dropped": _write("mail that has no place is consumed"),
    "agent.log.deleted": _write("a session is deleted, and its log says so; another may begin"),
    "agent.log.epoch": _write("another owner takes over an open run"),
    "agent.log.run_end": _write("the run is closed, fenced by all that is stored of the session"),
    # What an agent does beside its log.
    "agent.request": _write("a call is published for the executors of its host"),
    "agent.claim": _write("the agent takes a call back by claiming it"),
    "agent.timer": _write("the end of an approval's time is set"),
    "agent.notice": _write("a timer that fired becomes mail"),
    "agent.timer_purge": _work("a timer that fired is removed"),
    "agent.ack": _work("a wake-up is acknowledged: its mail is consumed"),
    "agent.hint": _work("the sweeper hints at a session that nobody serves"),
    "agent.projection": _write("the list of sessions shows something new"),
    "agent.unlist": _write("a decided approval leaves the list"),
    "agent.delete_workspace": _write("a host is told to remove the workspace of a session that is deleted"),
    "agent.delete_timers": _work("the timers of a session that is deleted are removed"),
    "agent.delete_list": _write("a session that is deleted leaves the list"),
    "agent.delete": _work("the mail of a session is removed, up to the notice that deletes it"),
    "agent.delete_log": _work("the log of a session is removed, up to the entry that accepts its deletion"),
    "agent.delete_rest": _work("what was left of the log before the entry that ends it is removed"),
    "lease.acquire": _write("a lease is taken: of a session, of the sweeper, of the scheduler"),
    "lease.renew": _write("a lease is renewed"),
    "lease.release": _work("a lease is given back"),
    # An executor.
    "tools.note": _work("the note of an attempt gets its name, before the claim"),
    "tools.claim": _write("a call is claimed"),
    "tools.launch": _work("a runner is started"),
    "tools.call": _work("the runner is given the call"),
    "tools.output": _write("a piece of a long output is stored"),
    "tools.result": _write("the result of a call is stored in the mailbox of its session"),
    "tools.forget": _work("the runner is told that the outcome was delivered"),
    "tools.done": _work("the note of a call moves to those that are done"),
    "tools.ack": _work("a request is acknowledged"),
    "tools.heartbeat": _write("an executor says that it lives"),
    # A runner, and the processes it forks.
    "runner.lock": _work("the lock of a call is taken in the journal"),
    "runner.gate": FailpointStep("the file that lets a call start once is made", may_be_unknown=("after",)),
    "runner.start": _command("the call is among the starts, synced"),
    "runner.process": _command("the process that will watch the command is written down"),
    "runner.fork": _command("a supervisor and a waiting child are forked"),
    "runner.go": _command("the child gets its order"),
    "runner.command": FailpointStep(
        "the supervisor spawns the command, or the child becomes it",
        may_be_unknown=("before",),
        moments=("before",),
        why="afterwards it is another program",
    ),
    "runner.guard": _command("the supervisor reports how the command ended"),
    "runner.outcome": _command("the outcome gets its name in the journal"),
    "runner.tell": _command("the outcome is told to who follows the call"),
    "runner.sync": _command("an outcome that nobody fetched yet is brought to the disk"),
    "runner.tombstone": _command("the tombstone of a delivered call is made, its files are removed"),
    "runner.background": _command("a command that runs on gets a record of its own"),
    "runner.recover": _command("a call whose runner died gets its outcome"),
    # The scheduler.
    "scheduler.job": _write("a new job is stored"),
    "scheduler.slot": _write("a slot is fired"),
    "scheduler.begin": _write("the run of a slot is in the history"),
    "scheduler.open": _write("the run is open: somebody has to see it to its end"),
    "scheduler.lane": _write("an isolated run gets its place, or leaves it"),
    "scheduler.run": _write("the state of a run changes"),
    "scheduler.mail": _write("mail goes into a session: settings, a prompt, a system event"),
    "scheduler.letter": _write("an answer that is to be delivered is kept"),
    "scheduler.attempt": _write("an attempt to deliver is counted, before it is made"),
    "scheduler.count": _write("a run that has ended is counted in the state of its job"),
    "scheduler.retire": _write("a one-shot job that had its moment is switched off"),
    "scheduler.shut": _work("a run is open no more"),
    "scheduler.ack": _work("a slot is acknowledged: its effect is stored"),
    "scheduler.position": _write("how far firing has got is stored"),
}


class Point(NamedTuple):
    """One place, and what can be done to who passes there."""

    step: str
    says: str
    actions: tuple[str, ...]
    may_be_unknown: bool


def _points() -> dict[str, Point]:
    found = {}
    for name, step in STEPS.items():
        for moment in step.moments:
            lost = (DROP_ACK,) if step.acknowledged and moment == "after" else ()
            says = f"{moment}: {step.says}"
            found[f"{name}.{moment}"] = Point(name, says, (KILL, STOP, *lost), moment in step.may_be_unknown)
    return found


POINTS: Final[Mapping[str, Point]] = _points()


def folder_of(environ: Mapping[str, str]) -> str | None:
    """Where points are armed; None outside of tests."""
    return (environ.get("FAIRLEAD_FAILPOINTS") or None) if environ.get("FAIRLEAD_TEST") == "1" else None


_folder: Final = folder_of(os.environ)


def failpoint(name: str) -> bool:
    """Pass a point. True if the acknowledgement that came a moment ago is to be lost."""
    return _folder is not None and _hit(_folder, name)


def passing(step: str, moment: str) -> bool:
    """As `failpoint`, for a step that may have no name."""
    return _folder is not None and bool(step) and _hit(_folder, f"{step}.{moment}")


def _hit(folder: str, name: str) -> bool:
    path = os.path.join(folder, name)
    taken = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    try:
        os.rename(path, taken)
    except FileNotFoundError:
        return False
    with open(taken, encoding="ascii") as file:
        action, count = file.read().split()
    if int(count) > 1:
        with open(taken, "w", encoding="ascii") as file:
            file.write(f"{action} {int(count) - 1}")
        os.rename(taken, path)
        return False
    _note(folder, name, action)
    if action == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == STOP:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.05)  # another thread may have been given the signal
    return action == DROP_ACK


def _note(folder: str, name: str, action: str) -> None:
    record = {
        "point": name,
        "action": action,
        "pid": os.getpid(),
        "t": time.monotonic_ns(),
        "wall_ms": time.time_ns() // 1_000_000,
    }
    fd = os.open(os.path.join(folder, "landed"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, json.dumps(record).encode("ascii") + b"\n")
        os.fsync(fd)
    finally:
        os.close(fd)
