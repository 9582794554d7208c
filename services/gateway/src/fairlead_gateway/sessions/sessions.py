"""Sessions: made, listed, changed, deleted, and spoken to. Every change is a mail to the session."""

import asyncio
import time
from datetime import datetime
from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fairlead_common.bus import WrongSequenceError
from fairlead_common.bus.reply_inbox import Headers
from fairlead_common.config import Mode
from fairlead_common.config.placement import effective_sandbox, sandbox_problem
from fairlead_common.errors import ConflictError, InvalidInputError
from fairlead_common.policy.rules import MAX_RULE_CHARS, MAX_RULES, check_rules
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import check_id, new_id
from fairlead_common.protocol.messages import (
    MAX_TEXT_CHARS,
    Abort,
    Attachment,
    CreateSession,
    SandboxKind,
    UpdateSession,
    UserInput,
    WorkMode,
)
from fairlead_common.protocol.projections import Session, SessionSummary
from fairlead_common.protocol.trace import child
from fairlead_common.session_log.generations import is_deleted
from fairlead_gateway.gateway import Gateway, answering, gateway_of, principal_of
from fairlead_gateway.http.problems import Problem, json_response
from fairlead_gateway.http.request_parsing import check_parameters, decode, one, whole_number
from fairlead_gateway.responses import Deleting, PromptStored, SessionPage, Stored
from fairlead_gateway.sessions.privilege_checks import check_change, check_new
from fairlead_gateway.sessions.session_sources import TAKEN_UP, take_up, wanted_source

DELETE_WAIT_S: Final = 10.0
MAX_ATTACHMENTS: Final = 32

Title = Annotated[str, msgspec.Meta(max_length=500)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
# The document knows the plain names alone; `check_rules` knows all rules.
_PLAIN_RULE: Final = {"pattern": "^(group:)?[A-Za-z0-9_-]+$"}
RuleText = Annotated[str, msgspec.Meta(max_length=MAX_RULE_CHARS, extra_json_schema=_PLAIN_RULE)]
RuleTexts = Annotated[list[RuleText], msgspec.Meta(max_length=MAX_RULES)]
Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")]


class NewSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/sessions`."""

    id: Id | None = None
    agent: Name | None = None
    mode: Mode | None = None
    title: Title | None = None
    sandbox: SandboxKind | None = None
    deny: RuleTexts | None = None
    work_mode: WorkMode | None = None


class SessionChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `PATCH /api/sessions/{id}`."""

    title: Title | None = None
    mode: Mode | None = None
    model: Name | None = None
    sandbox: SandboxKind | None = None
    deny: RuleTexts | None = None
    work_mode: WorkMode | None = None


class Upload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that comes with a prompt; `data` is base64."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[^/\\\x00-\x1f\x7f]+$(?!\n)")]
    media_type: Annotated[
        str, msgspec.Meta(max_length=127, pattern=r"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$(?!\n)")
    ]
    data: bytes


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a prompt, a steer or a follow-up."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TEXT_CHARS, pattern=r"\S")]
    key: Id | None = None
    attachments: Annotated[list[Upload], msgspec.Meta(max_length=MAX_ATTACHMENTS)] = []


class AbortBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/sessions/{id}/abort`."""

    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


async def create(request: Request) -> Response:
    """201 with the new session; 409 if there is one of this id."""
    check_parameters(request)
    gateway = gateway_of(request)
    body = await decode(request, NewSession, default=NewSession())
    session = body.id or new_id()
    notice = CreateSession(
        agent=body.agent,
        mode=body.mode,
        title=body.title,
        sandbox=body.sandbox,
        deny=body.deny,
        work_mode=body.work_mode,
        sender=principal_of(request).user,
    )
    check_rules(body.deny or [], "deny", allowing=False)
    check_new(principal_of(request), gateway.config.current, session, notice)
    async with answering():
        seq = await create_session(gateway, session, notice)
    summary = fresh_summary(gateway, session, notice, created_at=int(time.time() * 1000), seq=seq)
    gateway.index.expect(summary)
    return json_response(shown(summary), 201, {"Location": f"/api/sessions/{session}"})


async def create_session(gateway: Gateway, session: str, notice: CreateSession) -> int:
    """The sequence of the notice that creates a session.

    Raises:
        InvalidInputError: there is no such agent.
        Problem: 409, there is a session of this id; 403, the agent demands another sandbox.
    """
    agents = gateway.config.current.agents
    if notice.agent is not None and notice.agent not in agents:
        raise InvalidInputError("agent", f"must be one of {', '.join(agents)}; got {notice.agent!r}")
    check_sandbox(gateway, session, notice.agent, notice.sandbox)
    stored, expected = subjects.session_all(session), 0
    log = subjects.session_log(session)
    before = await gateway.bus.last(subjects.SESSIONS, log)
    while True:
        try:
            return await gateway.bus.append(
                subjects.SESSIONS,
                subjects.mail(session, "notice", "create"),
                msgspec.json.encode(notice),
                record_id=new_id(),
                expected=expected,
                fence=(stored, expected),
                point="gateway.session",
            )
        except WrongSequenceError as error:
            # What a session of this id that was deleted has left is no session.
            last = await gateway.bus.last(subjects.SESSIONS, stored, at_least=error.last)
            if last is not None and (last.seq == expected or await gateway.exists(session)):
                raise Problem(409, f"session {session} exists already", field="id") from None
            ended = await gateway.bus.last(subjects.SESSIONS, log)
            if ended is not None and ended.seq > (before.seq if before else 0):
                # This request may have made it, and heard nothing: it does not make it once more.
                raise Problem(409, f"session {session} was deleted meanwhile", field="id") from None
            expected = last.seq if last else 0


def check_sandbox(gateway: Gateway, session: str, agent: str | None, wish: str | None) -> None:
    """Refuse a sandbox that the profile does not leave to its sessions.

    Raises:
        Problem: 403, it is weaker than the profile demands, or no stand-in for it.
    """
    profile = gateway.config.current.agent(agent or "main")
    if wish is not None and profile is not None:
        problem = sandbox_problem(profile.sandbox, session, wish)
        if problem:
            raise Problem(403, f"sandbox: {problem}", code="sandbox_refused", field="sandbox")


async def listing(request: Request) -> Response:
    """A part of the list, newest first."""
    check_parameters(request, "limit", "before", "q", "source")
    limit = whole_number(request, "limit", 100, least=1, most=1000)
    cursor = one(request, "before")
    before = None if cursor is None else _cursor(cursor)
    query = one(request, "q") or ""
    if len(query) > 200:
        raise InvalidInputError("q", f"at most 200 characters, got {len(query)}")
    page = gateway_of(request).index.page(limit, before, query, wanted_source(request))
    return json_response(SessionPage(sessions=[shown(s) for s in page.sessions], next=page.cursor))


def _cursor(text: str) -> tuple[int, str]:
    updated_at, _, session = text.partition(".")
    if not (updated_at.isascii() and updated_at.isdigit() and len(updated_at) < 20):
        raise InvalidInputError("before", f"must be the `next` of an earlier answer, got {text[:80]!r}")
    return int(updated_at), check_id(session, "before")


async def get(request: Request) -> Response:
    """One session."""
    check_parameters(request)
    gateway = gateway_of(request)
    session = check_id(request.path_params["session"], "session")
    async with answering():
        return json_response(shown(await find(gateway, session)))


async def find(gateway: Gateway, session: str) -> SessionSummary:
    """A session as the lists show it, or what the streams say of one that they do not show yet.

    Raises:
        Problem: 404, there is no such session, whatever the list still shows.
    """
    await gateway.must_exist(session)
    return await _summary(gateway, session)


async def _summary(gateway: Gateway, session: str) -> SessionSummary:
    """The same for a session that is there."""
    summary = gateway.index.session(session)
    if summary is not None:
        return summary
    record = await gateway.bus.last(subjects.SESSIONS, subjects.mail(session, "notice", "create"))
    if record is None:
        return fresh_summary(gateway, session, CreateSession(), created_at=0, seq=0)
    try:
        notice = msgspec.json.decode(record.data, type=CreateSession)
    except msgspec.DecodeError:
        notice = CreateSession()
    created_at = _milliseconds(record.headers.get("Nats-Time-Stamp", ""))
    return fresh_summary(gateway, session, notice, created_at=created_at, seq=record.seq)


def fresh_summary(
    gateway: Gateway, session: str, notice: CreateSession, *, created_at: int, seq: int
) -> SessionSummary:
    """A session that nobody worked on yet."""
    agent = notice.agent or "main"
    profile = gateway.config.current.agent(agent)
    of_profile = profile.work_mode if profile else ""
    return SessionSummary(
        id=session,
        agent=agent,
        title=notice.title or "",
        mode=notice.mode or (profile.mode if profile else ""),
        model=profile.model if profile else "",
        sandbox=effective_sandbox(profile.sandbox, session, notice.sandbox or "") if profile else "",
        deny=notice.deny or [],
        work_mode=of_profile if notice.work_mode is None else notice.work_mode,
        source=notice.source,
        created_at=created_at,
        updated_at=created_at,
        context_window=profile.context_window if profile else 0,
        last_seq=seq,
    )


def shown(summary: SessionSummary) -> Session:
    """A session as the API shows it."""
    return Session(**{name: getattr(summary, name) for name in Session.__struct_fields__})


def _milliseconds(stamp: str) -> int:
    """Milliseconds since 1970 of the server's time stamp; 0 if it is none."""
    try:
        return int(msgspec.convert(stamp, type=datetime).timestamp() * 1000)
    except msgspec.ValidationError:
        return 0


async def change(request: Request) -> Response:
    """202 once the change is stored."""
    check_parameters(request)
    gateway = gateway_of(request)
    session = check_id(request.path_params["session"], "session")
    body = await decode(request, SessionChange)
    update = UpdateSession(
        mode=body.mode,
        title=body.title,
        model=body.model,
        sandbox=body.sandbox,
        deny=body.deny,
        work_mode=body.work_mode,
        sender=principal_of(request).user,
    )
    check_rules(body.deny or [], "deny", allowing=False)
    async with answering():
        seen = await gateway.must_exist(session)
        summary = await _summary(gateway, session)
        if body.sandbox is not None:
            check_sandbox(gateway, session, summary.agent, body.sandbox)
        if summary.source:
            update = msgspec.structs.replace(update, source=TAKEN_UP)
        check_change(principal_of(request), gateway.config.current, summary, update)
        seq = await gateway.bus.create(
            subjects.SESSIONS,
            subjects.mail(session, "notice", f"update-{new_id()}"),
            msgspec.json.encode(update),
            seen,
            point="gateway.update",
        )
    return json_response(Stored(seq=seq), 202)


async def delete(request: Request) -> Response:
    """204 when the session is deleted, or taken off the list if it is only there; 202 if it takes longer."""
    check_parameters(request)
    gateway = gateway_of(request)
    session = check_id(request.path_params["session"], "session")
    async with answering():
        if gateway.index.session(session) is None:
            seen = await gateway.must_exist(session)
        else:  # perhaps it is only listed
            seen = await gateway.seen(session) or {}
        notice = await ask_to_delete(gateway, session, principal_of(request).user, seen)
    pause_s = 0.02
    try:
        async with asyncio.timeout(DELETE_WAIT_S):
            while not await is_deleted(gateway.bus, session, notice):
                await asyncio.sleep(pause_s)
                pause_s = min(0.25, pause_s * 1.5)
    except TimeoutError:
        return json_response(Deleting(), 202)
    gateway.index.forget_until(session, notice)
    return Response(status_code=204)


async def ask_to_delete(gateway: Gateway, session: str, sender: str, seen: Headers) -> int:
    """Ask the agent service to delete a session; the sequence of the notice. Asking again does no harm.

    Args:
        seen: see `Gateway.seen`.
    """
    notice = msgspec.json.encode({"sender": sender})
    try:
        subject = subjects.mail(session, "notice", "delete")
        return await gateway.bus.create(subjects.SESSIONS, subject, notice, seen, point="gateway.delete")
    except ConflictError as error:  # somebody else asked
        if error.record is None:
            raise
        return error.record.seq


async def say(request: Request, kind: str) -> Response:
    """202 once a prompt, a steer or a follow-up is stored."""
    check_parameters(request)
    gateway = gateway_of(request)
    session = check_id(request.path_params["session"], "session")
    body = await decode(request, Words)
    key = chosen_key(body.key, request.headers.getlist("idempotency-key"))
    async with answering():
        seen = await gateway.must_exist(session)
        attachments = [await _store(gateway, upload) for upload in body.attachments]
        await take_up(gateway, gateway.index.session(session))
        words = UserInput(text=body.text, attachments=attachments, sender=principal_of(request).user)
        trace = request.headers.get(subjects.H_TRACE)
        seq = await store_words(gateway, session, kind, key, words, trace, seen)
    return json_response(PromptStored(seq=seq, key=key), 202)


def chosen_key(in_body: str | None, headers: list[str]) -> str:
    """The idempotency key of a request, or a new one.

    Raises:
        InvalidInputError: it is no key, or there are two different ones.
    """
    keys = {check_id(key, "Idempotency-Key") for key in headers}
    if in_body is not None:
        keys.add(in_body)
    if len(keys) > 1:
        raise InvalidInputError("key", "body and header Idempotency-Key must not differ")
    return keys.pop() if keys else new_id()


async def _store(gateway: Gateway, upload: Upload) -> Attachment:
    name = await gateway.objects.put(upload.data)
    return Attachment(
        object=name, name=upload.name, media_type=upload.media_type, size_bytes=len(upload.data)
    )


async def store_words(
    gateway: Gateway, session: str, kind: str, key: str, words: UserInput, trace: str | None, seen: Headers
) -> int:
    """The sequence under which the words are stored. Harmless to repeat.

    Args:
        trace: `traceparent` of the request; without one a new trace begins.
        seen: see `Gateway.seen`.

    Raises:
        Problem: 409, the key was used for other words.
    """
    data = msgspec.json.encode(words)  # the same words are the same bytes: no time, no random part
    packed, headers = await gateway.objects.pack(data)
    if headers:
        # Headers do not count when a repeat is told from something else; the payload does.
        packed = headers[subjects.H_OBJECT].encode()
    headers = {**headers, **seen, subjects.H_TRACE: child(trace)}
    try:
        subject = subjects.mail(session, kind, key)
        return await gateway.bus.create(subjects.SESSIONS, subject, packed, headers, point=f"gateway.{kind}")
    except ConflictError:
        raise Problem(409, f"the key {key} was used for something else", field="key") from None


async def abort(request: Request) -> Response:
    """202 once the wish to stop is stored."""
    check_parameters(request)
    gateway = gateway_of(request)
    session = check_id(request.path_params["session"], "session")
    body = await decode(request, AbortBody, default=AbortBody())
    wish = Abort(reason=body.reason, sender=principal_of(request).user)
    return await _abort(gateway, session, wish)


async def drop(request: Request) -> Response:
    """202 once the wish to drop a queued item is stored."""
    check_parameters(request)
    gateway = gateway_of(request)
    session = check_id(request.path_params["session"], "session")
    item = check_id(request.path_params["item"], "item")
    return await _abort(gateway, session, Abort(item=item, sender=principal_of(request).user))


async def _abort(gateway: Gateway, session: str, wish: Abort) -> Response:
    async with answering():
        seen = await gateway.must_exist(session)
        seq = await send_abort(gateway, session, wish, seen)
    return json_response(Stored(seq=seq), 202)


async def send_abort(gateway: Gateway, session: str, wish: Abort, seen: Headers) -> int:
    """The sequence under which the wish is stored. `seen`: see `Gateway.seen`."""
    subject = subjects.mail(session, "abort", new_id())
    data = msgspec.json.encode(wish)
    return await gateway.bus.create(subjects.SESSIONS, subject, data, seen, point="gateway.abort")
