"""The API that OpenAI's clients speak: a model is an agent, a completion is one prompt and its answer."""

import base64
import binascii
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fairlead_common import subjects
from fairlead_common.errors import InvalidInputError, RetryableError
from fairlead_common.ids import check_id, new_id
from fairlead_common.messages import MAX_TEXT_CHARS, Attachment, CreateSession, UserInput
from fairlead_gateway.auth import Principal
from fairlead_gateway.bodies import decode
from fairlead_gateway.chat_stream import Call, Completion
from fairlead_gateway.gateway import Gateway, answering, gateway_of, principal_of
from fairlead_gateway.problems import Problem, json_response, problem_of
from fairlead_gateway.sessions import create_session, store_words
from fairlead_gateway.widening import check_new

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_DATA_URL: Final = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)


class ImageUrl(msgspec.Struct, frozen=True):
    """A picture, as a `data:` URL."""

    url: str


class Part(msgspec.Struct, frozen=True):
    """A part of a message."""

    type: str
    text: str | None = None
    image_url: ImageUrl | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of the conversation as the client has it."""

    role: str
    content: str | list[Part] | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """What a stream ends with."""

    include_usage: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """Body of a chat completion. What is not named here is ignored: clients send much."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1, max_length=10_000)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class Target(NamedTuple):
    """The session of a call.

    Fields:
        own: made for this call.
        task: a side task of a client (a title, tags): nothing of it is kept.
    """

    session: str
    own: bool
    task: bool


async def models(request: Request) -> Response:
    """The agents."""
    agents = gateway_of(request).config.current.agents
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "fairlead"} for name in agents]
    return json_response({"object": "list", "data": data})


async def completions(request: Request) -> Completion:
    """A prompt, stored; and the answer, followed."""
    gateway = gateway_of(request)
    body = await decode(request, ChatRequest)
    if body.model not in gateway.config.current.agents:
        raise Problem(404, f"there is no agent {body.model[:80]!r}", code="model_not_found", field="model")
    sender = principal_of(request).user
    given_key = request.headers.get("idempotency-key")
    key = _token(given_key) if given_key else new_id()
    target = _target(request, given_key, sender)
    async with _once(retry_is_safe=given_key is not None), answering():
        known = await gateway.exists(target.session)
        event = await gateway.bus.last(subjects.EVENTS, subjects.event(target.session))
        prompts = [await _prompt(gateway, body.messages, sender, whole=target.own or not known)]
        if known and given_key:  # the first try may have been the one that made the session
            prompts.append(await _prompt(gateway, body.messages, sender, whole=not target.own))
        if not known:
            await _make(gateway, target, body.model, principal_of(request))
        trace = request.headers.get(subjects.H_TRACE)
        seq = await _store(gateway, target.session, key, prompts, trace)
    options = body.stream_options
    return Completion(
        Call(
            gateway=gateway,
            session=target.session,
            model=body.model,
            key=key,
            sender=sender,
            seq=seq,
            event_seq=event.seq if event else 0,
            stream=bool(body.stream),
            usage_wanted=options is not None and bool(options.include_usage),
            own=target.own,
            detached="x-fairlead-detach" in request.headers,
            task=target.task,
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


def _target(request: Request, key: str | None, sender: str) -> Target:
    headers = request.headers
    suffix = hashlib.sha256(f"{sender}\n{key}".encode()).hexdigest()[:32] if key else new_id()
    if "x-openwebui-task" in headers:
        return Target(f"task-{suffix}", own=True, task=True)
    if (name := headers.get("x-fairlead-session")) is not None:
        return Target(check_id(name, "X-Fairlead-Session"), own=False, task=False)
    name = headers.get("x-openwebui-chat-id") or headers.get("x-conversation-id")
    if name:
        return Target(_token(name), own=False, task=False)
    return Target(f"chat-{suffix}", own=True, task=False)


def _token(text: str) -> str:
    """`text` if it is an id, else one made from it."""
    return text if _ID.match(text) else f"x-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


async def _make(gateway: Gateway, target: Target, agent: str, principal: Principal) -> None:
    mode = "safe" if target.task else None
    notice = CreateSession(agent=agent, mode=mode, sender=principal.user)
    check_new(principal, gateway.config.current, target.session, notice)
    try:
        await create_session(gateway, target.session, notice)
    except Problem as problem:
        if problem.status != 409:  # else another request was first
            raise


async def _store(
    gateway: Gateway, session: str, key: str, prompts: list[UserInput], trace: str | None
) -> int:
    for prompt in prompts[:-1]:
        try:
            return await store_words(gateway, session, "prompt", key, prompt, trace)
        except Problem as problem:
            if problem.status != 409:
                raise
    return await store_words(gateway, session, "prompt", key, prompts[-1], trace)


# -- the conversation ------------------------------------------------------------


async def _prompt(gateway: Gateway, messages: list[ChatMessage], sender: str, *, whole: bool) -> UserInput:
    """The last user message; with `whole` everything else as its context.

    Raises:
        InvalidInputError: there is nothing to say.
    """
    place = max((n for n, message in enumerate(messages) if message.role == "user"), default=None)
    if place is None:
        raise InvalidInputError("messages", "at least one must have the role `user`, got none")
    text = _text(messages[place])
    attachments = [await _attachment(gateway, url) for url in _images(messages[place])]
    if not text.strip():
        if not attachments:
            raise InvalidInputError(f"messages[{place}].content", "must not be empty")
        text = "(see the attached image)"
    context = [(m.role, _text(m)) for n, m in enumerate(messages) if n != place]
    if whole and context:
        text = _with_context(context, text)
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidInputError("messages", f"at most {MAX_TEXT_CHARS} characters, got {len(text)}")
    return UserInput(text=text, attachments=attachments, sender=sender)


def _with_context(context: list[tuple[str, str]], text: str) -> str:
    parts = [f"[{role}]\n{words}" for role, words in context if words.strip()]
    if not parts:
        return text
    return "\n\n".join(["The conversation so far:", *parts, "The message to answer now:", text])


def _text(message: ChatMessage) -> str:
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    words = []
    for part in message.content:
        if part.type == "text":
            words.append(part.text or "")
        elif part.type != "image_url":
            raise InvalidInputError(
                "messages", f"parts must be `text` or `image_url`, got {part.type[:80]!r}"
            )
    return "\n".join(words)


def _images(message: ChatMessage) -> list[str]:
    if not isinstance(message.content, list):
        return []
    return [part.image_url.url for part in message.content if part.image_url is not None]


async def _attachment(gateway: Gateway, url: str) -> Attachment:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise InvalidInputError("image_url", "must be a data: URL with base64; nothing is fetched")
    try:
        data = base64.b64decode(match["data"], validate=True)
    except binascii.Error as error:
        raise InvalidInputError("image_url", f"not base64: {error}") from error
    media_type = match["type"]
    name = f"image.{media_type.partition('/')[2].partition('+')[0]}"
    stored = await gateway.objects.put(data)
    return Attachment(object=stored, name=name, media_type=media_type, size_bytes=len(data))
