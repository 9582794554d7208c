"""Decides the next step of a session from its state alone.

A pure function: no I/O, nothing remembered. A worker that takes over an open run decides exactly as the
previous one would have. `loop.py` performs the steps.
"""

from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple

from fairlead_agent.session.provider_wait import ProviderWait
from fairlead_agent.session.repetition import STUCK, streak
from fairlead_agent.tools.client_calls import GONE_CODE, missing_results
from fairlead_agent.tools.questions import is_passed_over
from fairlead_agent.turn.response_form import REPAIR_MARK, UNFIT, unfit
from fairlead_common.config import AgentConfig
from fairlead_common.protocol.branch_entries import BranchRequestEntry, CompactRequestEntry
from fairlead_common.protocol.content import AssistantMessage
from fairlead_common.protocol.entries import Outcome, QueuedEntry
from fairlead_common.protocol.messages import PromptOptions, RunLimitsInput
from fairlead_common.protocol.undo_entries import UndoRequestEntry
from fairlead_common.session_log.conversation import Run
from fairlead_common.session_log.rules import PARKED_OUTCOMES, reply_outcome
from fairlead_common.session_log.spending import asks_for_budget
from fairlead_common.session_log.state import SessionState
from fairlead_common.session_log.verification import commands

MOVED = "the conversation goes on from another entry"
NOT_VERIFIED: Final = "verification_failed"  # `RunEndEntry.error_code`
NOT_CONFIGURED: Final = "not_configured"
MAX_ATTEMPTS = 5  # owners in a row that took over a run and got no further


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do until mail arrives."""


@dataclass(frozen=True, slots=True)
class Delete:
    """The session's deletion was accepted: stop what runs and carry it out."""


@dataclass(frozen=True, slots=True)
class StartRun:
    """Open a run.

    Fields:
        said: the user input that begins it; None: it continues the previous run (`resumes`).
        agent: name of the profile, for a session that has none yet.
        cursor: sequence of the mail that `run_start` itself consumes; 0: a later entry consumes it.
    """

    said: QueuedEntry | None = None
    resumes: bool = False
    agent: str | None = None
    cursor: int = 0


@dataclass(frozen=True, slots=True)
class StartHeartbeat:
    """Open a run for the heartbeats that are due, or record that there is nothing to do."""


@dataclass(frozen=True, slots=True)
class AddUserMessage:
    """Append queued input of one sender as one user message."""

    said: tuple[QueuedEntry, ...]


@dataclass(frozen=True, slots=True)
class AddHeartbeatMessage:
    """Append the heartbeat's message to a run whose owner died right after it opened the run."""


@dataclass(frozen=True, slots=True)
class AddProcessLines:
    """Append the system lines that wait, as one of them tells the open run of a background process."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """Ask the model for the next assistant message."""


@dataclass(frozen=True, slots=True)
class RunTools:
    """Bring the pending tool calls to their results, or park the run for an approval or for its client."""


@dataclass(frozen=True, slots=True)
class NextRound:
    """Run the commands that verify edits."""

    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportRound:
    """Tell the model which of them failed.

    Fields:
        round: from 1.
    """

    round: int


@dataclass(frozen=True, slots=True)
class AskForForm:
    """Tell the model, once, what keeps its last reply from having the form that was asked for."""

    problems: str


@dataclass(frozen=True, slots=True)
class EndRun:
    """Cancel unfinished tool calls and close the run. See `RunEndEntry` for the fields.

    Fields:
        wait: with the outcome `waiting_provider`.
    """

    outcome: Outcome
    error: str | None = None
    error_code: str = ""
    wait: ProviderWait | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """Read what was said before: the state lacks it."""


@dataclass(frozen=True, slots=True)
class ChangeBranch:
    """Carry out a request to go on from another entry. No run is open."""

    request: BranchRequestEntry


@dataclass(frozen=True, slots=True)
class CompactConversation:
    """Carry out a person's request to replace the older part of the conversation by a summary."""

    request: CompactRequestEntry


@dataclass(frozen=True, slots=True)
class RestoreFiles:
    """Undo what the session did to files. No run is open."""

    request: UndoRequestEntry


Step = (
    Idle
    | Delete
    | Restore
    | ChangeBranch
    | CompactConversation
    | RestoreFiles
    | StartRun
    | StartHeartbeat
    | AddUserMessage
    | AddHeartbeatMessage
    | AddProcessLines
    | CallModel
    | RunTools
    | NextRound
    | ReportRound
    | AskForForm
    | EndRun
)


class TurnLimit(NamedTuple):
    """A limit of turns, and how many of them the run had."""

    name: str
    limit: int
    used: int

    @property
    def left(self) -> int:
        """Turns that the run may still have."""
        return self.limit - self.used

    @property
    def last_mark(self) -> str:
        """The mark of the note that tells the model of its last turn."""
        return f"{self.name} 1"


class RunLimits(NamedTuple):
    """Limits of one run, from the agent's profile and the prompt that began it: each holds by itself.

    Those of the prompt count turns over all runs that continue its run after a wait. Its `usd` and `tokens`
    are held by the budget, see `own_limits`.

    Fields:
        max_run_tokens: 0: no limit.
        max_repeats: turns in a row without any difference; 0: no limit.
        verify: commands that verify edits, of the profile. verify_rounds: how often they may fail.
    """

    max_run_s: float
    max_turns: int
    max_run_tokens: int
    asked: RunLimitsInput = RunLimitsInput()
    max_repeats: int = 0
    verify: tuple[str, ...] = ()
    verify_rounds: int = 5

    @classmethod
    def of(cls, profile: AgentConfig, options: PromptOptions | None = None) -> "RunLimits":
        """The limits that `profile` and the prompt set."""
        asked = options.limits if options is not None else None
        return cls(
            profile.max_run_s,
            profile.max_turns,
            profile.max_run_tokens,
            asked or RunLimitsInput(),
            profile.repetition.stop_after,
            tuple(profile.verify),
            profile.verify_rounds,
        )

    def is_out_of_time(self, run: Run, now_ms: int) -> bool:
        """Whether the run has taken longer than it may."""
        return (now_ms - run.started_ms) / 1000 > self.time[1]

    @property
    def time(self) -> tuple[str, float]:
        """The stricter limit of the time, and its field."""
        asked_s = self.asked.seconds
        if asked_s is not None and asked_s < self.max_run_s:
            return "limits.seconds", asked_s
        return "max_run_s", self.max_run_s

    def exceeded(self, state: SessionState, run: Run, now_ms: int) -> EndRun | None:
        """How the run ends if it has reached a limit; None: it has not."""
        if self.is_out_of_time(run, now_ms):
            took_s = (now_ms - run.started_ms) / 1000
            field, limit_s = self.time
            return EndRun("timed_out", f"{field}: at most {limit_s:g} s, this run took {took_s:.1f} s")
        turns = self.turns(state, run)
        if not state.needs_reply:
            # Its model was told that calls of the last turn are not carried out.
            return turns_over(turns) if state.pending and turns.last_mark in state.noted else None
        if state.spending.refused:
            return EndRun("budget", state.spending.refused)
        return turns_over(turns) or self._tokens(run) or self._repeats(state)

    def turns(self, state: SessionState, run: Run) -> TurnLimit:
        """The limit of turns that is reached first."""
        own = TurnLimit("max_turns", self.max_turns, run.turns)
        if self.asked.turns is None:
            return own
        asked = TurnLimit("limits.turns", self.asked.turns, state.earlier_turns + run.turns)
        return asked if asked.left <= own.left else own

    def _repeats(self, state: SessionState) -> EndRun | None:
        found = streak(state, self.max_repeats)
        if not self.max_repeats or found is None or found.rounds < self.max_repeats:
            return None
        return EndRun("failed", f"The model repeats itself: {found.shown} (repetition.stop_after).", STUCK)

    def _tokens(self, run: Run) -> EndRun | None:
        used = run.usage.input_tokens + run.usage.output_tokens
        if self.max_run_tokens and used > self.max_run_tokens:
            text = f"max_run_tokens: at most {self.max_run_tokens} tokens, this run used {used}"
            return EndRun("budget", text)
        return None


def turns_over(turns: TurnLimit) -> EndRun | None:
    """How the run ends if it has had all its turns."""
    if turns.left > 0:
        return None
    text = f"{turns.name}: at most {turns.limit} turns in a run, this one had {turns.used}"
    return EndRun("turn_limit", text)


def next_step(state: SessionState, start: StartRun | None, limits: RunLimits | None, now_ms: int) -> Step:
    """The next step of a session.

    Args:
        state: the fold of its log.
        start: the run that the next unconsumed mail needs, if any.
        limits: limits of the session's agent; None: that agent is not configured.
        now_ms: wall-clock time in milliseconds, as in entries.
    """
    if state.deleting:
        return Delete()
    if state.lacks_history:
        return Restore()
    run = state.run
    if run is None:
        return _between_runs(state, start)
    if state.requests:
        return EndRun("aborted", MOVED)
    if limits is None:
        return EndRun("failed", f"agent: {state.agent!r} is not configured", NOT_CONFIGURED)
    if state.attempts > MAX_ATTEMPTS:
        text = f"{MAX_ATTEMPTS} workers in a row took over this run without progress; the run was given up"
        return EndRun("failed", text)
    if run.aborting:
        return EndRun("aborted", run.abort_reason or None)
    if ending := limits.exceeded(state, run, now_ms) or _without_client(state, run):
        return ending
    return _in_run(state, run, limits)


def _between_runs(state: SessionState, start: StartRun | None) -> Step:
    if state.undo_requests:
        return RestoreFiles(next(iter(state.undo_requests.values())))
    if state.requests:
        if state.parked:
            return StartRun(resumes=True)
        if edited := state.queue.get(state.edited):  # not on the branch of the next request
            return StartRun(edited)
        return ChangeBranch(next(iter(state.requests.values())))
    if state.compact_requests:
        return CompactConversation(next(iter(state.compact_requests.values())))
    if state.parked:
        goes_on = is_passed_over(state) or state.has_client_results
        return StartRun(resumes=True) if goes_on else start or Idle()
    if state.regenerates and state.needs_reply:
        return StartRun(resumes=True)
    if state.queue:
        return StartRun(next(iter(state.queue.values())))
    if start is not None:
        return start
    return StartHeartbeat() if state.wakes.beats else Idle()


def _in_run(state: SessionState, run: Run, limits: RunLimits) -> Step:
    if state.pending:
        return RunTools()
    if state.verification.failing:
        return ReportRound(state.verification.failed_rounds + 1)
    if state.compact_requests:
        return CompactConversation(next(iter(state.compact_requests.values())))
    if state.steers:
        return AddUserMessage(_of_one_sender(state.steers))
    if not run.spoken:  # its owner died between the start of the run and its first message
        if state.followups:
            return AddUserMessage((state.followups[0],))
        if state.wakes.beats:
            return AddHeartbeatMessage()
        return EndRun("failed", "this run has no message")
    if state.needs_reply:
        if ending := _unverified(state, limits):
            return ending
        return AddProcessLines() if state.wakes.tells_of_process else CallModel()
    if state.followups and not state.runs_alone:
        return AddUserMessage((state.followups[0],))
    return _completed(state, limits)


def _completed(state: SessionState, limits: RunLimits) -> Step:
    """The step after a reply without calls, when nothing else waits."""
    ending = ending_after(state.last_answer)
    if ending.outcome != "completed":
        return ending
    templates = limits.verify if state.verify is None else state.verify
    found = commands(templates, state.verification.edited)
    if found:
        return NextRound(tuple(found))
    return _in_form(state) or ending


def _without_client(state: SessionState, run: Run) -> EndRun | None:
    """How a run ends whose client did not send results, and no message goes on with it."""
    if state.pending or not run.spoken:  # a run without its first message yet is the next one
        return None
    match missing_results(state):
        case "gone":
            text = "client_result_timeout_s: the client did not send the results of its tools in time"
            return EndRun("timed_out", text, GONE_CODE)
        case "instead" if state.asks_for_run and not state.steers:
            return EndRun("aborted", "a new prompt came instead of the results of the client's tools")
        case _:
            return None


def _in_form(state: SessionState) -> AskForForm | EndRun | None:
    """What is done about a last reply that has another form than was asked for; None: it has that form."""
    problems = unfit(state)
    if not problems:
        return None
    if REPAIR_MARK not in state.noted:
        return AskForForm(problems)
    return EndRun("failed", f"response_format: the reply does not have this form: {problems}", UNFIT)


def _unverified(state: SessionState, limits: RunLimits) -> EndRun | None:
    """How the run ends if its edits are verified no further; None: they are."""
    verification = state.verification
    if verification.denied:
        text = "verify: a command that must succeed after edits was denied"
        return EndRun("failed", text, NOT_VERIFIED)
    if verification.failed_rounds < limits.verify_rounds:
        return None
    text = f"verify: what must succeed after edits failed {verification.failed_rounds} times (verify_rounds)"
    return EndRun("failed", text, NOT_VERIFIED)


def _of_one_sender(steers: list[QueuedEntry]) -> tuple[QueuedEntry, ...]:
    """The first steer and the following ones of the same sender and trust: policy judges by both.

    What an MCP server gave is a message of its own: nothing that a person wrote is told as a server's words.
    """
    if steers[0].server_prompt is not None:
        return (steers[0],)
    same = (steers[0].sender, steers[0].untrusted, None)
    return tuple(takewhile(lambda item: (item.sender, item.untrusted, item.server_prompt) == same, steers))


def ending_after(answer: AssistantMessage | None) -> EndRun:
    """How a run ends whose last reply is `answer`."""
    return EndRun(*reply_outcome(answer))


def may_end(state: SessionState, outcome: Outcome) -> bool:
    """Whether the run may still end with `outcome`, after the mail consumed since that was decided."""
    if state.run is None:
        return False
    if outcome != "completed" and outcome not in PARKED_OUTCOMES:
        return True
    if state.run.aborting or state.deleting or state.requests:
        return False
    if outcome == "completed":
        waits = state.queue and not (state.runs_alone and not state.steers)
        return not (waits or state.pending or state.needs_reply)
    if outcome == "requires_action":
        return state.awaits_client and not is_passed_over(state)
    if outcome == "waiting_approval":
        return not is_passed_over(state) and any(
            request.call_id in state.pending for request in state.approvals.values()
        )
    if outcome == "waiting_budget":  # what it waits for may be decided by now
        return any(map(asks_for_budget, state.approvals.values()))
    return state.needs_reply or bool(state.pending)
