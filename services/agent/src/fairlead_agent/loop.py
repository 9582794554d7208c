"""The agent loop: an outer loop while follow-ups arrive, an inner one while there are calls or steers.

What to do next is read off the state, never remembered: a worker that takes over an open run goes
through the same lines as the one that began it.
"""

import itertools
import time
from collections.abc import Callable, Coroutine
from typing import NamedTuple

import structlog

from fairlead_agent.catalog import Catalog, Tools
from fairlead_agent.left_out import NOTHING, Cause
from fairlead_agent.mailbox import Mailbox
from fairlead_agent.models.interface import ModelError
from fairlead_agent.owner import Owner
from fairlead_agent.tool_calls import HandOverError, ToolCalls
from fairlead_agent.turn import Turn
from fairlead_common.config import AgentConfig
from fairlead_common.content import AssistantMessage, UserMessage
from fairlead_common.cron.acknowledgement import is_acknowledgement
from fairlead_common.entries import (
    CustomEntry,
    DroppedEntry,
    EpochEntry,
    MessageEntry,
    Outcome,
    QueuedEntry,
    RunEndEntry,
)
from fairlead_common.errors import InvalidInputError
from fairlead_common.ids import new_id
from fairlead_common.live_config import LiveConfig
from fairlead_common.session_marks import HEARTBEAT_OK, HEARTBEAT_SKIPPED
from fairlead_common.trace import trace_id

log = structlog.get_logger()

MAX_ATTEMPTS = 5

Publish = Callable[[], Coroutine[object, object, None]]


class Ending(NamedTuple):
    """How a run ends; see `RunEndEntry`."""

    outcome: Outcome
    error: str | None = None
    error_code: str = ""


def _ending(answer: AssistantMessage | None) -> Ending:
    """What the last reply makes of its run."""
    if answer is not None and answer.stop_reason == "length":
        limit = f" of {answer.usage.output_tokens} tokens" if answer.usage.output_tokens else ""
        return Ending("truncated", f"The reply was cut off at the output limit{limit}.", "output_limit")
    if answer is not None and answer.error:
        return Ending("failed", answer.error, answer.error_code)
    if answer is None or not answer.text.strip():
        text = "The model returned an empty reply, also after it was asked to continue."
        return Ending("failed", text, "empty_reply")
    return Ending("completed")


class AgentLoop:
    """Drives one owned session until it is idle, parked, deleted or handed over."""

    def __init__(
        self,
        owner: Owner,
        mailbox: Mailbox,
        calls: ToolCalls,
        turn: Turn,
        catalog: Catalog,
        config: LiveConfig,
        worker: str,
    ) -> None:
        self._owner = owner
        self._state = owner.state
        self._mailbox = mailbox
        self._calls = calls
        self._turn = turn
        self._catalog = catalog
        self._config = config
        self._worker = worker
        self._replies = mailbox.replies

    async def run(self, project: Publish) -> None:
        """Until nothing is left to do.

        Args:
            project: called when the list of sessions should show something new.

        Raises:
            HandOverError: this worker drains.
            LostOwnershipError: another worker took over.
        """
        state = self._state
        if state.run is not None:
            await self._take_over()
        await self._mailbox.drain()
        while not state.deleting:
            if state.run is None and state.queue and not state.parked:
                await self._begin_from_queue()
            elif state.run is None and state.wakes.beats and not state.parked:
                await self._begin_heartbeat()
            if state.run is None and not (state.wakes.beats and not state.parked):
                break
            if state.run is None:
                continue
            await project()
            await self._run()
            await self._mailbox.drain()
        if state.deleting:
            await self._calls.cancel_all()
            await self._replies.send("dropped", "the session was deleted", of_queue=True)
        else:
            await project()

    async def _take_over(self) -> None:
        attempt = self._state.attempts + 1
        await self._owner.append(EpochEntry(id=new_id(), worker=self._worker, attempt=attempt))
        log.info("run_taken_over", session=self._owner.session, attempt=attempt)
        if attempt > MAX_ATTEMPTS:
            await self._calls.cancel_all()
            await self._end(
                "failed", f"{MAX_ATTEMPTS} workers in a row took up this run and got no further; given up"
            )

    async def _begin_from_queue(self) -> None:
        async with self._owner.lock:
            await self._mailbox.begin_run()
        await self._say([next(iter(self._state.queue.values()))])

    async def _begin_heartbeat(self) -> None:
        """Begin the heartbeats that wait, as one run; or note that there is nothing to do."""
        state = self._state
        if self._owner.stopping.is_set():
            raise HandOverError
        name = state.agent or "main"
        profile = self._config.current.agent(name) or AgentConfig()
        file = await self._turn.workspace_file(name, profile, profile.heartbeat.file)
        beats = state.wakes.beats
        async with self._owner.lock:
            if state.run is not None or not beats or state.queue:
                return  # somebody spoke meanwhile
            if not (state.wakes.lines or file.strip() or any(beat.force for beat in beats.values())):
                why = f"nothing to do: no system event, and {profile.heartbeat.file} is missing or empty"
                data: dict[str, object] = {"keys": [beat.key for beat in beats.values()], "why": why}
                await self._owner.append_locked(CustomEntry(id=new_id(), name=HEARTBEAT_SKIPPED, data=data))
                return
            await self._mailbox.begin_run()
            await self._say_heartbeat(profile, file)

    async def _say_heartbeat(self, profile: AgentConfig, file: str) -> None:
        shown = f"{profile.heartbeat.file}:\n\n{file.strip()}" if file.strip() else ""
        await self._mailbox.say_heartbeat(profile.heartbeat.prompt, shown)

    async def _note_quiet(self, profile: AgentConfig) -> None:
        """A heartbeat that found nothing to do is kept from people."""
        state = self._state
        answer = state.last_answer
        if state.run is None or not state.run.heartbeat or state.run.quiet or answer is None:
            return
        if is_acknowledgement(answer.text, max_rest_chars=profile.heartbeat.ack_max_chars):
            entries = [item.entry_id for item in state.items[state.run.first_item :]]
            await self._owner.append(CustomEntry(id=new_id(), name=HEARTBEAT_OK, data={"entries": entries}))

    # -- one run -----------------------------------------------------------

    async def _run(self) -> None:
        """From here to the end of the run."""
        state = self._state
        while state.run is not None and not state.deleting:
            if self._owner.stopping.is_set():
                raise HandOverError
            profile = self._config.current.agent(state.agent)
            if profile is None:
                await self._calls.cancel_all()
                await self._end("failed", f"agent: {state.agent!r} is not configured")
                continue
            if state.run.aborting:
                await self._calls.cancel_all()
                await self._drop_queue("the run was aborted")
                await self._end("aborted", state.run.abort_reason or None)
                continue
            if limit := self._limit(profile):
                await self._calls.cancel_all()
                await self._end(*limit)
                continue
            try:
                await self._step(profile)
            except ModelError as error:
                await self._fail(error)
            except InvalidInputError as error:
                await self._end("failed", str(error))

    async def _fail(self, error: ModelError) -> None:
        cause = self._turn.cause
        if cause != NOTHING:
            log.info("input_left_out", code=error.code, messages=len(cause.whole), images=len(cause.images))
        text = str(error)
        if cause != NOTHING and error.refused and "left out" not in text:
            what = "The new input" if cause.whole else "The image"
            text = f"{text} ({what} is left out of later requests.)"
        await self._end("failed", text, error.code, cause)

    async def _step(self, profile: AgentConfig) -> None:
        state = self._state
        if state.pending:
            tools = await self._tools(profile)
            if await self._calls.settle(profile, tools) == "parked":
                await self._end("waiting_approval")
        elif state.steers:
            await self._say(_of_one_sender(state.steers))
        elif not self._spoken:  # its owner died between the start of the run and the first words
            if state.followups:
                await self._say(state.followups[:1])
            elif state.wakes.beats:
                async with self._owner.lock:
                    await self._say_heartbeat(profile, "")
            else:
                await self._end("failed", "nothing was said in this run")
        elif state.needs_reply:
            await self._turn.take(state.agent, profile)
        else:
            ending = _ending(state.last_answer)
            if state.followups:
                await self._say(state.followups[:1])
            else:
                if ending.outcome == "completed":
                    await self._note_quiet(profile)
                await self._end(*ending)

    @property
    def _spoken(self) -> bool:
        return self._state.run is not None and self._state.run.spoken

    def _may_close(self, outcome: Outcome) -> bool:
        """Whether the state, as the mail that was consumed meanwhile left it, is still one to end so."""
        state = self._state
        if state.run is None or (outcome != "waiting_approval" and self._replies.open()):
            return False  # mail that repeats what this run answers came meanwhile
        if outcome not in ("completed", "waiting_approval"):
            return True
        if state.run.aborting or state.deleting:
            return False
        if outcome == "completed":
            return not (state.queue or state.pending or state.needs_reply)
        return any(request.call_id in state.pending for request in state.approvals.values())

    async def _tools(self, profile: AgentConfig) -> Tools:
        host = next((call.host for call in self._state.pending.values() if call.host), None)
        if host is not None and not self._catalog.executors(host):
            await self._catalog.wait_for(host)
        work_mode = self._state.work(profile.work_mode)
        return self._catalog.tools(host, profile.tools, work_mode) if host else Tools([], [])

    def _limit(self, profile: AgentConfig) -> tuple[Outcome, str] | None:
        run = self._state.run
        if run is None:
            return None
        elapsed_s = time.time() - run.started_ms / 1000
        if self._owner.out_of_time:
            return "timed_out", f"max_run_s: at most {profile.max_run_s:g} s, this run took {elapsed_s:.1f} s"
        if not self._state.needs_reply:
            return None
        if run.turns >= profile.max_turns:
            return (
                "turn_limit",
                f"max_turns: at most {profile.max_turns} turns in a run, this one had {run.turns}",
            )
        used = run.usage.input_tokens + run.usage.output_tokens
        if profile.max_run_tokens and used > profile.max_run_tokens:
            return "budget", f"max_run_tokens: at most {profile.max_run_tokens} tokens, this run used {used}"
        return None

    async def _say(self, queued: list[QueuedEntry]) -> None:
        """Turn queued items of one sender into one user message; what a follow-up comes after is answered."""
        state = self._state
        async with self._owner.lock:
            queued = [item for item in queued if item.id in self._state.queue]
            if not queued:
                return
            if queued[0].kind != "steer":
                # Under the lock, so that no mail that repeats what is answered here comes between.
                ending = _ending(state.last_answer)
                await self._replies.send(ending.outcome, ending.error)
            lines = self._state.wakes.block()
            await self._owner.append_locked(
                MessageEntry(
                    id=new_id(),
                    items=[*lines.items, *(item.id for item in queued)],
                    message=UserMessage(
                        content=[*lines.content, *(block for item in queued for block in item.content)],
                        source=queued[0].kind,
                        seqs=[item.mail_seq for item in queued],
                        keys=[item.key for item in queued if item.key],
                        sender=queued[0].sender,
                        reply_to=next((item.reply_to for item in queued if item.reply_to), None),
                        untrusted=lines.untrusted or any(item.untrusted for item in queued),
                    ),
                )
            )

    async def _drop_queue(self, reason: str) -> None:
        async with self._owner.lock:
            if self._state.queue:
                await self._owner.append_locked(
                    DroppedEntry(id=new_id(), reason=reason, items=list(self._state.queue))
                )

    async def _end(
        self, outcome: Outcome, error: str | None = None, code: str = "", cause: Cause = NOTHING
    ) -> None:
        """Close the run, unless new mail makes it go on.

        Args:
            cause: what later requests leave out.
        """
        state = self._state
        run = state.run
        if run is None:
            return
        ended = [] if outcome == "waiting_approval" else self._ended()
        closed = False
        while not closed:
            if outcome != "waiting_approval":
                await self._replies.send(outcome, error)
            end = RunEndEntry(
                id=new_id(),
                outcome=outcome,
                error=error,
                error_code=code,
                left_out=cause.whole,
                left_out_images=cause.images,
                turns=run.turns,
                usage=run.usage,
                duration_ms=time.time_ns() // 1_000_000 - run.started_ms,
                seqs=[seq for seq, _ in ended],
                keys=[key for _, key in ended if key],
            )
            closed = await self._owner.close(end, lambda: self._may_close(outcome))
            if not closed:
                await self._mailbox.drain()
                if state.run is None or outcome in ("completed", "waiting_approval"):
                    return
        log.info(
            "run_ended",
            run=run.run_id,
            outcome=outcome,
            turns=run.turns,
            trace=trace_id(self._owner.trace),
        )

    def _ended(self) -> list[tuple[int, str]]:
        waiting = self._state.waiting
        return [pair for pair in self._state.unended if pair[0] not in waiting]


def _of_one_sender(queued: list[QueuedEntry]) -> list[QueuedEntry]:
    """The first items that one sender wrote with one trust: a message is judged by both as a whole."""
    same = (queued[0].sender, queued[0].untrusted)
    return list(itertools.takewhile(lambda item: (item.sender, item.untrusted) == same, queued))
