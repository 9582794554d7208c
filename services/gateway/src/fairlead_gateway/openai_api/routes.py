"""The API that OpenAI's clients speak: a model is an agent, a completion is one prompt and its answer."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from fairlead_common.errors import RetryableError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import check_id, is_id, new_id
from fairlead_common.protocol.messages import UserInput
from fairlead_common.protocol.notices import CreateSession
from fairlead_common.received import Headers
from fairlead_gateway.gateway import Gateway, answering, gateway_of, principal_of
from fairlead_gateway.http.auth import Principal
from fairlead_gateway.http.problems import Problem, json_response, problem_of
from fairlead_gateway.http.request_parsing import parse
from fairlead_gateway.openai_api.accepted import AcceptedCall, AcceptedCalls, Visit, request_hash
from fairlead_gateway.openai_api.format import CompletionOptions
from fairlead_gateway.openai_api.prompt import prompt_of, words_of
from fairlead_gateway.openai_api.request import ChatMessage, ChatRequest, check_supported
from fairlead_gateway.openai_api.side_task import SideTask, is_side_task
from fairlead_gateway.openai_api.stream import AcceptedCompletion, Completion
from fairlead_gateway.responses import Model, ModelList
from fairlead_gateway.sessions.privilege_checks import check_new
from fairlead_gateway.sessions.prompts import store_words
from fairlead_gateway.sessions.session_sources import API, take_up
from fairlead_gateway.sessions.sessions import create_session

RETRY_COUNT: Final = "x-stainless-retry-count"  # of OpenAI's SDKs: 0 for the first attempt, then 1, 2, ...

_COUNT: Final = re.compile(r"[0-9]{1,4}\Z")


class CompletionAttempt(NamedTuple):
    """One request, and the prompt that it is about.

    Fields:
        key: of the prompt. own: the session is made for this call.
        again: an earlier request may have stored the prompt.
        visit: tells this request from later ones for the same answer; None where there can be none.
        record: under which the call has to be recorded before its prompt is stored; empty: it need not be.
        backoff_s: how long the client waits before it sends the request again.
    """

    session: str
    key: str
    own: bool
    again: bool = False
    visit: Visit | None = None
    record: str = ""
    backoff_s: float = 0.0


async def models(request: Request) -> Response:
    """The agents."""
    agents = gateway_of(request).config.current.agents
    return json_response(ModelList(data=[Model(id=name) for name in agents]))


async def model(request: Request) -> Response:
    """One agent."""
    name = request.path_params["model"]
    _check_model(gateway_of(request), name)
    return json_response(Model(id=name))


def _check_model(gateway: Gateway, name: str) -> None:
    if name not in gateway.config.current.agents:
        raise Problem(404, f"there is no agent {name[:80]!r}", code="model_not_found", field="model")


async def completions(request: Request) -> Completion | SideTask:
    """A prompt, stored; and the answer, followed. A side task is answered without either."""
    gateway = gateway_of(request)
    raw = await request.body()
    body = parse(raw, ChatRequest)
    check_supported(body)
    _check_model(gateway, body.model)
    sender = principal_of(request).user
    if is_side_task(request, body, gateway.config.current.gateway.openai.task_beginnings):
        return SideTask(gateway, body, sender)
    calls = AcceptedCalls(gateway.bus)
    async with _once(retry_is_safe=_is_repeatable(request)), answering():
        attempt = await _attempt(request, calls, raw, sender)
        visit, seen, event = await asyncio.gather(
            _recorded(calls, attempt),
            gateway.seen(attempt.session),
            gateway.bus.last(subjects.EVENTS, subjects.event(attempt.session)),
        )
        prompts = await _prompts(gateway, body.messages, sender, attempt, known=seen is not None)
        if attempt.record and await request.is_disconnected():
            # Its next attempt may have looked for this one already, and found nothing.
            raise Problem(408, "the client closed the connection before its request was accepted")
        if seen is None:
            await _make(gateway, attempt, body, principal_of(request))
            seen = {} if attempt.own else await gateway.must_exist(attempt.session)
        elif not attempt.own:
            await take_up(gateway, gateway.index.session(attempt.session))
        seq = await _store(gateway, attempt, prompts, request.headers.get(subjects.H_TRACE), seen)
    options = body.stream_options
    usage_wanted = options is not None and bool(options.include_usage)
    return Completion(
        AcceptedCompletion(
            gateway=gateway,
            session=attempt.session,
            wanted=CompletionOptions(body.model, bool(body.stream), usage_wanted),
            key=attempt.key,
            sender=sender,
            seq=seq,
            event_seq=event.seq if event else 0,
            own=attempt.own,
            detached="x-fairlead-detach" in request.headers,
            calls=calls,
            visit=visit,
            backoff_s=attempt.backoff_s,
        )
    )


@asynccontextmanager
async def _once(*, retry_is_safe: bool) -> AsyncIterator[None]:
    """Keeps clients that repeat failed requests by themselves from saying things twice."""
    try:
        yield
    except (RetryableError, TimeoutError) as error:
        problem = problem_of(error)
        if not retry_is_safe:
            problem.headers["x-should-retry"] = "false"
        raise problem from error


# -- which prompt it is --------------------------------------------------------------


async def _attempt(request: Request, calls: AcceptedCalls, raw: bytes, sender: str) -> CompletionAttempt:
    """What was accepted of this request before, or a new call."""
    headers = request.headers
    named = _named_session(request)
    given = headers.get("idempotency-key")
    if given:
        suffix = hashlib.sha256(f"{sender}\n{given}".encode()).hexdigest()[:32]
        session = named or f"chat-{suffix}"
        key = _token(given)
        call = request_hash([sender.encode(), session.encode(), key.encode()])
        return CompletionAttempt(session, key, own=not named, again=True, visit=await calls.visit(call))
    new = CompletionAttempt(named or f"chat-{new_id()}", new_id(), own=not named)
    counted = headers.get(RETRY_COUNT, "")
    if not _COUNT.match(counted):
        return new
    count = int(counted)
    backoff_s = min(8.0, 0.5 * 2 ** min(count, 10))  # as those SDKs have it
    same = request_hash([sender.encode(), (named or "").encode(), raw])
    found = await calls.find(same, count) if count else None
    if found is not None:
        accepted, visit = found
        return CompletionAttempt(
            accepted.session, accepted.key, accepted.own, again=True, visit=visit, backoff_s=backoff_s
        )
    return new._replace(record=same, backoff_s=backoff_s)


async def _recorded(calls: AcceptedCalls, attempt: CompletionAttempt) -> Visit | None:
    if not attempt.record:
        return attempt.visit
    return await calls.accept(attempt.record, AcceptedCall(attempt.session, attempt.key, attempt.own))


def _is_repeatable(request: Request) -> bool:
    """Whether the request, sent again, is known to be the same one."""
    return "idempotency-key" in request.headers or bool(_COUNT.match(request.headers.get(RETRY_COUNT, "")))


def _named_session(request: Request) -> str:
    """The session that the client names; empty if it names none."""
    headers = request.headers
    if (name := headers.get("x-fairlead-session")) is not None:
        return check_id(name, "X-Fairlead-Session")
    name = headers.get("x-openwebui-chat-id") or headers.get("x-conversation-id")
    return _token(name) if name else ""


def _token(text: str) -> str:
    """`text` if it is an id, else one made from it."""
    return text if is_id(text) else f"x-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


# -- storing it ----------------------------------------------------------------------


async def _prompts(
    gateway: Gateway, messages: list[ChatMessage], sender: str, attempt: CompletionAttempt, *, known: bool
) -> list[UserInput]:
    """What the prompt may be stored as: without and with what was said before it, the likeliest last."""
    whole = attempt.own or not known
    prompts = [await prompt_of(gateway.objects, messages, sender, whole=whole)]
    if known and attempt.again:  # the first request may have been the one that made the session
        prompts.append(await prompt_of(gateway.objects, messages, sender, whole=not attempt.own))
    return prompts


async def _make(
    gateway: Gateway, attempt: CompletionAttempt, body: ChatRequest, principal: Principal
) -> None:
    first_line = words_of(body.messages[-1]).strip().partition("\n")[0]
    notice = CreateSession(
        agent=body.model,
        title=first_line[:60] if len(body.messages) > 1 else None,  # else the prompt begins with other words
        source=API if attempt.own else "",
        sender=principal.user,
    )
    check_new(principal, gateway.config.current, attempt.session, notice)
    try:
        await create_session(gateway, attempt.session, notice)
    except Problem as problem:
        if problem.status != 409:  # else another request was first
            raise


async def _store(
    gateway: Gateway, attempt: CompletionAttempt, prompts: list[UserInput], trace: str | None, seen: Headers
) -> int:
    for prompt in prompts[:-1]:
        try:
            return await store_words(gateway, attempt.session, "prompt", attempt.key, prompt, trace, seen)
        except Problem as problem:
            if problem.status != 409:
                raise
    return await store_words(gateway, attempt.session, "prompt", attempt.key, prompts[-1], trace, seen)
