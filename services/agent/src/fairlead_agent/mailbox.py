"""From mail to entries: consuming a message is appending the entry that says so, exactly once, in order."""

import time

import msgspec
import structlog

from fairlead_agent import settings_mail
from fairlead_agent.attachments import content_of
from fairlead_agent.deletion import Deletion
from fairlead_agent.grants import Grants
from fairlead_agent.held_keys import without_keys
from fairlead_agent.owner import Owner
from fairlead_agent.placement import moved
from fairlead_agent.replies import Replies, reply_subject, wanted_reply
from fairlead_agent.tool_calls import ToolCalls
from fairlead_common import subjects
from fairlead_common.bus import Record
from fairlead_common.content import (
    Source,
    TextBlock,
    ToolResultMessage,
    UserMessage,
)
from fairlead_common.dead import dead_letter
from fairlead_common.entries import (
    ApprovalDecision,
    ApprovalEntry,
    CustomEntry,
    DroppedEntry,
    MessageEntry,
    QueuedEntry,
    RunStartEntry,
    SessionInfoEntry,
)
from fairlead_common.errors import BadMessageError, NotFoundError
from fairlead_common.generations import DELETE, begins_session
from fairlead_common.ids import new_id
from fairlead_common.live_config import LiveConfig
from fairlead_common.messages import (
    INPUT_KINDS,
    Abort,
    CreateSession,
    Decision,
    HeartbeatNotice,
    MoveSession,
    Notice,
    SystemNotice,
    ToolResult,
    UpdateSession,
    UserInput,
    decode_mail,
)
from fairlead_common.session_log.state import ABORT
from fairlead_common.session_marks import DELIVERY, HEARTBEAT, HEARTBEAT_SKIPPED, SYSTEM_EVENT

log = structlog.get_logger()


class Mailbox:
    """Consumes the mail of one session for its owner."""

    def __init__(
        self, owner: Owner, config: LiveConfig, calls: ToolCalls, grants: Grants, deletion: Deletion
    ) -> None:
        self._owner = owner
        self._state = owner.state
        self._config = config
        self._calls = calls
        self._grants = grants
        self._deletion = deletion
        self.replies = Replies(owner)

    async def drain(self) -> None:
        """Consume all mail that has arrived.

        Raises:
            LostOwnershipError: another owner acts for the session.
        """
        async with self._owner.lock:
            for record in await self._owner.receive():
                if self._state.deleting:
                    await self._take_result(record)
                else:
                    await self._consume(record)

    async def _take_result(self, record: Record) -> None:
        """While the session is deleted: results of its calls that are being stopped, and no other mail."""
        subject = subjects.parse_session(record.subject)
        if subject.kind == "result" and subject.key in self._state.pending:
            await self._consume(record._replace(seq=self._state.cursor))  # no mail before it is passed over

    async def _consume(self, record: Record) -> None:
        subject = subjects.parse_session(record.subject)
        if self._is_stale(record):
            await self._drop_stale(subject.kind, record)
            return
        if not self._state.exists and not begins_session(subject.kind, subject.key):
            await self._deletion.forget(self._owner, record)
            return
        try:
            data = await self._owner.objects.unpack(record.data, record.headers)
            mail = decode_mail(subject.kind, subject.key, data)
        except (BadMessageError, NotFoundError) as error:
            if subject.kind in INPUT_KINDS:
                await self.replies.refuse(wanted_reply(record), f"could not be read: {error}")
            await self._dead_letter(record, str(error))
            return
        if isinstance(mail, UserInput | Abort) and (first := await self._repeated(subject.key, record)):
            await self._repeat(first, subject.key, mail, record)
            return
        match mail:
            case UserInput():
                await self._input(msgspec.convert(subject.kind, Source), subject.key, mail, record)
            case Abort():
                await self._abort(mail, record.seq)
            case Decision():
                await self._decision(subject.key, mail, record.seq)
            case ToolResult():
                await self._result(subject.key, mail, record.seq)
            case Notice():
                await self._notice(mail, record)

    def _is_stale(self, record: Record) -> bool:
        """Whether it was meant for a session of this id that was deleted since: its sender knew that one."""
        seen = record.headers.get(subjects.H_SEEN, "")
        return seen.isascii() and seen.isdecimal() and int(seen) < self._state.born_cursor

    async def _drop_stale(self, kind: str, record: Record) -> None:
        reason = "it was sent to a session of this id that was deleted since"
        log.info("stale_mail_dropped", session=self._owner.session, seq=record.seq)
        if kind in INPUT_KINDS:
            await self.replies.refuse(wanted_reply(record), reason)
        if not self._state.exists:
            await self._deletion.forget(self._owner, record)
            return
        await self._owner.append_locked(
            DroppedEntry(id=new_id(), cursor=record.seq, reason=reason, seqs=[record.seq])
        )

    # -- the same request again ---------------------------------------------

    async def _repeated(self, key: str, record: Record) -> int:
        """Sequence of the first mail under the same key; 0 if this is the first, or has no key.

        Who publishes create-only, as Fairlead's own services do, was let through by the server because it
        was the first. A header that only looks so makes a request of its own, as another key would.
        """
        headers = record.headers
        if not key or (headers.get(subjects.H_EXPECTED) == "0" and subjects.H_EXPECTED_ON not in headers):
            return 0
        first = await self._owner.bus.first(subjects.SESSIONS, record.subject)
        return first.seq if first is not None and first.seq < record.seq else 0

    async def _repeat(self, first: int, key: str, mail: UserInput | Abort, record: Record) -> None:
        """Consume mail that repeats an earlier one, and see that it gets the answer of that one."""
        reply_to = None
        if isinstance(mail, UserInput):
            reply_to = reply_subject(mail.reply_to or record.headers.get(subjects.H_REPLY_TO))
        if reply_to and (answer := await self.replies.answer_of(first)):
            await self.replies.tell(reply_to, answer)
            reply_to = None
        log.info("mail_repeated", seq=record.seq, first=first)
        await self._owner.append_locked(
            DroppedEntry(
                id=new_id(),
                cursor=record.seq,
                reason=f"the key {key} was used by mail {first}: this repeats it",
                seqs=[record.seq],
                repeats=first,
                reply_to=reply_to,
            )
        )

    # -- what people say ---------------------------------------------------

    async def _input(self, kind: Source, key: str, mail: UserInput, record: Record) -> None:
        content = await content_of(mail, self._owner.objects)
        self._owner.trace = record.headers.get(subjects.H_TRACE) or self._owner.trace
        reply_to = reply_subject(mail.reply_to or record.headers.get(subjects.H_REPLY_TO))
        if self._state.run is not None or self._state.parked:
            await self._owner.append_locked(
                QueuedEntry(
                    id=new_id(),
                    cursor=record.seq,
                    kind=self._queue_kind(kind),
                    content=content,
                    mail_seq=record.seq,
                    key=key or None,
                    sender=mail.sender,
                    reply_to=reply_to,
                    untrusted=mail.untrusted,
                )
            )
            return
        await self.begin_run(agent=mail.agent)
        lines = self._state.wakes.block()
        await self._owner.append_locked(
            MessageEntry(
                id=new_id(),
                cursor=record.seq,
                items=lines.items,
                message=UserMessage(
                    content=[*lines.content, *content],
                    source=kind,
                    seqs=[record.seq],
                    keys=[key] if key else [],
                    sender=mail.sender,
                    reply_to=reply_to,
                    untrusted=mail.untrusted or lines.untrusted,
                ),
            )
        )

    def _queue_kind(self, kind: Source) -> Source:
        if kind == "prompt":
            profile = self._config.current.agent(self._state.agent)
            return "steer" if profile and profile.queue_mode == "steer" else "followup"
        return kind

    async def begin_run(
        self, *, agent: str | None = None, resumes: str | None = None, cursor: int = 0
    ) -> None:
        """Leave idle, with the lock held. `cursor`: the mail that this consumes."""
        name = self._state.agent or agent or "main"
        profile = self._config.current.agent(name)
        await self._owner.append_locked(
            RunStartEntry(
                id=new_id(),
                cursor=cursor,
                run_id=new_id(),
                agent=name,
                model=self._state.model or (profile.model if profile else ""),
                mode=self._state.mode or (profile.mode if profile else ""),
                resumes=resumes,
            )
        )

    async def _abort(self, mail: Abort, seq: int) -> None:
        if mail.item is not None:
            queued = self._state.queue.get(mail.item)
            if queued is not None:
                await self.replies.drop(queued.mail_seq, "taken back")
            await self._owner.append_locked(
                DroppedEntry(
                    id=new_id(),
                    cursor=seq,
                    reason="taken back" if queued else f"nothing is queued as {mail.item}",
                    items=[mail.item] if queued else [],
                    seqs=[queued.mail_seq] if queued else [],
                    keys=[queued.key] if queued and queued.key else [],
                )
            )
            return
        if mail.run_id is not None and mail.run_id not in self._state.lineage:
            await self._ignore(f"run {mail.run_id[:80]} does not run", seq)
            return
        if self._state.run is None and self._state.parked:
            await self.begin_run(resumes=self._state.last_run_id)
        if self._state.run is None:
            await self._ignore("nothing runs that could be aborted", seq)
            return
        await self._owner.append_locked(
            CustomEntry(id=new_id(), cursor=seq, name=ABORT, data={"reason": mail.reason})
        )

    async def _decision(self, key: str, mail: Decision, seq: int) -> None:
        request = self._state.approvals.get(mail.approval_id)
        if request is None or key != mail.approval_id:
            await self._ignore(f"approval {mail.approval_id} is not open", seq)
        elif mail.shown_hash != request.shown_hash:
            await self._ignore(f"the decision on {mail.approval_id} is about something else", seq)
        else:
            late = time.time_ns() // 1_000_000 > request.expires_at
            # A lasting yes that was not on offer is a yes to this call alone.
            lasting = mail.decision in request.grants
            decision = mail.decision if mail.decision == "deny" or lasting else "once"
            if decision == "always" and not late:
                await self._grants.add(self._state.agent, request)
            await self._decide(
                request.id,
                request.call_id,
                "expired" if late else decision,
                mail.reason,
                mail.sender,
                seq,
            )

    async def _decide(
        self,
        approval_id: str,
        call_id: str,
        decision: ApprovalDecision,
        reason: str,
        sender: str | None,
        seq: int,
    ) -> None:
        if self._state.run is None:
            await self.begin_run(resumes=self._state.last_run_id)
        await self._owner.append_locked(
            ApprovalEntry(
                id=new_id(),
                cursor=seq,
                approval_id=approval_id,
                call_id=call_id,
                decision=decision,
                reason=reason,
                sender=sender,
            )
        )

    # -- what machines say -------------------------------------------------

    async def _result(self, key: str, mail: ToolResult, seq: int) -> None:
        call = self._state.pending.get(mail.call_id)
        if call is None or key != mail.call_id:
            await self._ignore(f"late result of call {mail.call_id}", seq)
            return
        if not await self._calls.token_fits(call, mail.token):
            log.warning("result_forged", call=mail.call_id, executor=mail.executor)
            await self._ignore(f"the result of call {mail.call_id} has the wrong token", seq)
            return
        await self._owner.append_locked(
            MessageEntry(
                id=new_id(),
                cursor=seq,
                message=ToolResultMessage(
                    call_id=call.call_id,
                    name=call.name,
                    outcome=without_keys(mail.outcome),
                    provider_id=call.provider_id,
                    flags=self._calls.flags(call.call_id, mail.outcome),
                    secret=self._calls.showed_secret(call.call_id, mail.outcome),
                ),
            )
        )

    async def _notice(self, mail: Notice, record: Record) -> None:
        seq = record.seq
        try:
            if mail.name == "create":
                await settings_mail.create(
                    self._owner, msgspec.json.decode(mail.body, type=CreateSession), seq
                )
            elif mail.name == "delete":
                await self._owner.append_locked(CustomEntry(id=new_id(), cursor=seq, name=DELETE))
            elif mail.name.startswith("update"):
                await settings_mail.update(
                    self._owner, msgspec.json.decode(mail.body, type=UpdateSession), seq
                )
            elif mail.name.startswith("move-"):
                await self._move(msgspec.json.decode(mail.body, type=MoveSession), seq)
            elif mail.name.startswith("retry-"):
                await self._retry(seq)
            elif mail.name.startswith("system-"):
                await self._mark(SYSTEM_EVENT, msgspec.json.decode(mail.body, type=SystemNotice), seq)
            elif mail.name.startswith("delivery-"):
                await self._mark(DELIVERY, msgspec.json.decode(mail.body, type=SystemNotice), seq)
            elif mail.name.startswith("heartbeat-"):
                await self._beat(mail.name, msgspec.json.decode(mail.body, type=HeartbeatNotice), seq)
            elif mail.name.startswith("approval-"):
                await self._expire(mail.name.removeprefix("approval-"), seq)
            else:
                raise BadMessageError(f"unknown notice {mail.name!r}")
        except (msgspec.DecodeError, BadMessageError) as error:
            await self._dead_letter(record, f"notice {mail.name}: {error}")

    async def _move(self, body: MoveSession, seq: int) -> None:
        profile = self._config.current.agent(self._state.agent or "main")
        if profile is None:
            await self._ignore(f"agent {self._state.agent!r} is not configured", seq)
            return
        place = moved(self._state, profile, body.host, force_empty=body.force_empty)
        if isinstance(place, str):
            await self._ignore(f"not moved to {body.host}: {place}", seq)
            return
        await self._owner.append_locked(SessionInfoEntry(id=new_id(), cursor=seq, placement=place))

    async def _retry(self, seq: int) -> None:
        state = self._state
        if state.can_retry:
            await self.begin_run(resumes=state.last_run_id, cursor=seq)
        else:
            await self._ignore("there is no run to try again", seq)

    async def _mark(self, name: str, body: SystemNotice, seq: int) -> None:
        data: dict[str, object] = {"text": body.text, "source": body.source}
        if body.untrusted:
            data["untrusted"] = True
        await self._owner.append_locked(CustomEntry(id=new_id(), cursor=seq, name=name, data=data))

    async def _beat(self, key: str, body: HeartbeatNotice, seq: int) -> None:
        """A heartbeat waits for its moment; a regular one that finds the session busy does not happen."""
        state = self._state
        if body.reason == "interval" and (state.run is not None or state.parked or state.queue):
            data: dict[str, object] = {"keys": [key], "why": "the session is busy"}
            await self._owner.append_locked(
                CustomEntry(id=new_id(), cursor=seq, name=HEARTBEAT_SKIPPED, data=data)
            )
            return
        data = {"key": key, "seq": seq, "reason": body.reason, "force": body.force}
        await self._owner.append_locked(CustomEntry(id=new_id(), cursor=seq, name=HEARTBEAT, data=data))

    async def say_heartbeat(self, prompt: str, file: str) -> None:
        """Begin the run of all heartbeats that wait with its words, with the lock held."""
        wakes = self._state.wakes
        lines = wakes.block()
        text = f"{prompt}\n\n{file}" if file else prompt
        await self._owner.append_locked(
            MessageEntry(
                id=new_id(),
                items=[*lines.items, *wakes.beats],
                message=UserMessage(
                    content=[*lines.content, TextBlock(text=text)],
                    source="system",
                    seqs=[beat.seq for beat in wakes.beats.values()],
                    keys=[beat.key for beat in wakes.beats.values()],
                    sender="heartbeat",
                    untrusted=lines.untrusted,
                ),
            )
        )

    async def _expire(self, approval_id: str, seq: int) -> None:
        request = self._state.approvals.get(approval_id)
        if request is None:
            await self._ignore(f"approval {approval_id} is not open", seq)
            return
        await self._decide(approval_id, request.call_id, "expired", "", None, seq)

    # -- what does not fit -------------------------------------------------

    async def _ignore(self, reason: str, seq: int) -> None:
        await self._owner.append_locked(DroppedEntry(id=new_id(), cursor=seq, reason=reason))

    async def _dead_letter(self, record: Record, reason: str) -> None:
        log.warning("mail_dead_lettered", seq=record.seq, reason=reason)
        await dead_letter(self._owner.bus, "sessions", record, reason)
        await self._owner.append_locked(
            DroppedEntry(
                id=new_id(), cursor=record.seq, reason=f"could not be read: {reason}"[:500], seqs=[record.seq]
            )
        )
