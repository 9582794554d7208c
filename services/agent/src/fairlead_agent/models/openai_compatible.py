"""Any server that speaks OpenAI's chat completions over HTTP, without a library in between.

A chunk costs a few microseconds here and hundreds in a general client, and at thousands of tokens
a second that is the difference between a busy core and an idle one.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from itertools import groupby
from urllib.parse import urlsplit

import aiohttp
import msgspec

from fairlead_agent.models.chat_format import encode_messages, encode_tools
from fairlead_agent.models.interface import (
    BackEndSetup,
    Failure,
    Finish,
    ModelError,
    ModelRequest,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolCallPiece,
)
from fairlead_agent.models.provider_errors import provider_error, retry_after_s
from fairlead_common.config.models import OPENAI_URL
from fairlead_common.protocol.content import StopReason, Usage


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Cached(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


class _Listed(msgspec.Struct):
    id: str = ""


class _Listing(msgspec.Struct):
    data: list[_Listed] = []


class _Chunk(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Chunk).decode

_STOP: dict[str, tuple[StopReason, Failure]] = {
    "length": ("length", ""),
    "max_tokens": ("length", ""),
    "model_length": ("length", ""),
    "model_context_window_exceeded": ("length", ""),
    "tool_calls": ("tool_use", ""),
    "tool_use": ("tool_use", ""),
    "function_call": ("tool_use", ""),
    "content_filter": ("stop", "content_filter"),
    "safety": ("stop", "content_filter"),
    "refusal": ("stop", "refusal"),
    "pause_turn": ("stop", "reply_paused"),
}
_LISTING_BYTES = 8 << 20
END_S = 0.02  # less than a new connection to any provider takes
AUTO_MODEL_S = 60.0  # then `auto` asks again which model the server has: it may have loaded another
_EFFORTS = {"minimal", "low", "medium", "high"}


class OpenAICompatible:
    """The back end for one base URL and key.

    Args:
        silence_s: gives the longest wait for the next byte of an answer, in seconds; asked for each request.
    """

    def __init__(self, base_url: str, api_key: str | None, *, silence_s: Callable[[], float]) -> None:
        self._url = base_url.rstrip("/")
        self._key = api_key
        self._silence_s = silence_s
        self._http: aiohttp.ClientSession | None = None
        self._first_model: str | None = None
        self._named_at = 0.0

    async def close(self) -> None:
        """Close pooled connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def check(self, model: str) -> str:
        """See `Model.check`. Asks for the list of models, which costs nothing."""
        where = urlsplit(self._url).hostname or self._url
        try:
            async with self._session().get(f"{self._url}/models", timeout=self._timeout()) as response:
                status, raw = response.status, await response.content.read(_LISTING_BYTES)
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            text = str(error) or type(error).__name__
            raise ModelError("retryable", f"{where} does not answer: {text}") from error
        if status in (401, 403):
            text = (
                "refuses the key in OPENAI_API_KEY"
                if self._key
                else "requires a key, and OPENAI_API_KEY is not set"
            )
            raise ModelError("auth", f"{where} {text} (HTTP {status})")
        if status >= 500:
            raise ModelError("retryable", f"{where} answers with HTTP {status}")
        listed = _listed(raw) if status == 200 else []
        if listed and model not in (*listed, "auto"):
            shown = ", ".join(listed[:5])
            raise ModelError("fatal", f"{where} does not list model {model!r}; it has {shown}")
        return f"{where} answers{'' if status == 200 else f' (HTTP {status})'}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[Piece]]:
        """See `Model.stream`."""
        model = request.model if request.model != "auto" else await self._auto_model()
        try:
            async with self._session().post(
                f"{self._url}/chat/completions",
                data=body(request, model, await encode_messages(request)),
                headers=_JSON,
                timeout=self._timeout(),
            ) as response:
                if response.status != 200:
                    raise await _refusal(response)
                async for pieces in _pieces(response):
                    yield pieces
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
            text = str(error) or type(error).__name__
            raise ModelError("retryable", f"{self._url}: {text}") from error

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            self._http = aiohttp.ClientSession(
                headers=headers,
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
                read_bufsize=256 * 1024,
            )
        return self._http

    def _timeout(self) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(total=None, connect=15, sock_read=self._silence_s())

    async def _auto_model(self) -> str:
        now = time.monotonic()
        if self._first_model is None or now - self._named_at > AUTO_MODEL_S:
            try:
                async with self._session().get(f"{self._url}/models", timeout=self._timeout()) as response:
                    if response.status != 200:
                        raise await _refusal(response)
                    listing = msgspec.json.decode(await response.read())
                self._first_model = str(listing["data"][0]["id"])
                self._named_at = now
            except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
                text = str(error) or type(error).__name__
                raise ModelError("retryable", f"{self._url}/models: {text}") from error
            except (LookupError, TypeError) as error:
                raise ModelError("retryable", f"{self._url}/models names no model") from error
        return self._first_model


def _listed(raw: bytes) -> list[str]:
    """The ids in a list of models; none if it is no such list."""
    try:
        found = msgspec.json.decode(raw, type=_Listing)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    return [each.id for each in found.data if each.id]


_JSON = {"Content-Type": "application/json", "Accept": "text/event-stream"}


def body(request: ModelRequest, model: str, messages: bytes) -> bytes:
    """The request as it is sent; `messages` are those of it, encoded and joined by commas."""
    options: dict[str, object] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.max_output_tokens is not None:
        options["max_completion_tokens"] = request.max_output_tokens
    if request.thinking in _EFFORTS:
        options["reasoning_effort"] = request.thinking
    parts = [msgspec.json.encode(options)[:-1], b',"messages":[', messages, b"]"]
    if request.tools:
        parts += [b',"tools":', encode_tools(request.tools)]
    return b"".join([*parts, b"}"])


async def _pieces(response: aiohttp.ClientResponse) -> AsyncIterator[list[Piece]]:
    if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
        chunk = _parse(await response.read())  # a server that does not stream
        choice = chunk.choices[0] if chunk.choices else _Choice()
        whole: list[Piece] = []
        delta = choice.delta or choice.message or _Delta()
        _add_pieces(whole, delta)
        yield [*whole, _end(choice.finish_reason, chunk.usage, refused=bool(delta.refusal))]
        return
    buffer = b""
    reason: str | None = None
    usage = None
    finished = refused = False
    async for data in response.content.iter_any():
        lines = (buffer + data).split(b"\n")
        buffer = lines.pop()
        batch: list[Piece] = []
        for line in lines:
            if line.startswith(b"data:"):
                payload = line[5:].strip()
            elif line.startswith(b'{"error"'):  # some servers fall out of the format when they fail
                payload = line
            else:
                continue
            if payload == b"[DONE]":
                finished = True
                break
            chunk = _parse(payload)
            usage = chunk.usage or usage
            if chunk.choices:
                choice = chunk.choices[0]
                reason = choice.finish_reason or reason
                if told := choice.delta or choice.message:
                    refused = refused or bool(told.refusal)
                    _add_pieces(batch, told)
        if batch:
            yield _joined(batch)
        if finished:
            break
    if reason is None and not finished:
        raise ModelError("retryable", "the provider ended the stream in the middle of the answer")
    yield [_end(reason, usage, refused=refused)]
    await _take_end(response)


async def _take_end(response: aiohttp.ClientResponse) -> None:
    """The last packet of an answer, if it is about to come: its connection then serves the next request."""
    with contextlib.suppress(TimeoutError, aiohttp.ClientError):  # the answer is whole already
        async with asyncio.timeout(END_S):
            while not response.content.at_eof():
                await response.content.readany()


def _parse(payload: bytes) -> _Chunk:
    try:
        chunk = _decode(payload)
    except msgspec.DecodeError as error:
        raise ModelError("retryable", f"the provider sent an invalid chunk: {error}") from error
    if chunk.error and bytes(chunk.error) != b"null":
        text, code, status = _told(msgspec.json.decode(chunk.error))
        raise provider_error(f"the provider broke off with an error: {text}", status=status, code=code)
    return chunk


def _told(error: object) -> tuple[str, str, int | None]:
    """Text, code with type, and numeric code of a provider's error object, in whatever shape it comes."""
    if not isinstance(error, dict):
        return str(error), "", None
    inner = error.get("error")
    if isinstance(inner, dict | str) and "message" not in error:
        return _told(inner)
    code, kind = error.get("code"), error.get("type")
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdecimal()) else None
    names = [str(each) for each in (code, kind, error.get("status")) if isinstance(each, str)]
    text = str(error.get("message") or msgspec.json.encode(error).decode())
    return text, " ".join(names), status if status is None or 400 <= status < 600 else None


def _add_pieces(pieces: list[Piece], delta: _Delta) -> None:
    if thought := delta.reasoning_content or delta.reasoning:
        pieces.append(ThinkingPiece(thought))
    if words := delta.content or delta.refusal:
        pieces.append(TextPiece(words))
    for call in delta.tool_calls or ():
        function = call.function or _Function()
        pieces.append(ToolCallPiece(call.index, function.arguments or "", call.id, function.name))


def _joined(pieces: list[Piece]) -> list[Piece]:
    """The same with fewer pieces: words, thoughts and arguments that follow one another are one each."""
    found: list[Piece] = []
    for (kind, index), alike in groupby(pieces, _joins_with):
        if kind is TextPiece:
            found.append(TextPiece("".join([each.text for each in alike if isinstance(each, TextPiece)])))
        elif kind is ThinkingPiece:
            thoughts = [each.text for each in alike if isinstance(each, ThinkingPiece)]
            found.append(ThinkingPiece("".join(thoughts)))
        elif kind is ToolCallPiece:
            arguments = [each.arguments for each in alike if isinstance(each, ToolCallPiece)]
            found.append(ToolCallPiece(index, "".join(arguments)))
        else:
            found += alike
    return found


def _joins_with(piece: Piece) -> tuple[type | None, int | None]:
    """What neighbours that can be one piece have in common; no type for a piece that stays as it is."""
    if isinstance(piece, ToolCallPiece):
        return (None, None) if piece.id or piece.name else (ToolCallPiece, piece.index)
    return type(piece), None


def _end(reason: str | None, usage: _Usage | None, *, refused: bool) -> Finish:
    if reason == "error":
        raise ModelError("retryable", "the provider ended the reply with an error and gave no text")
    stop, failure = _STOP.get((reason or "").lower(), ("stop", ""))
    return Finish(stop, _usage(usage), "refusal" if refused else failure)


def _usage(usage: _Usage | None) -> Usage:
    if usage is None:
        return Usage()
    details = usage.prompt_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cache_read_tokens=(details.cached_tokens or 0) if details else 0,
    )


async def _refusal(response: aiohttp.ClientResponse) -> ModelError:
    raw = await response.content.read(64 * 1024)
    code, text = "", raw.decode("utf-8", "replace").strip()
    with contextlib.suppress(msgspec.DecodeError):
        text, code, _ = _told(msgspec.json.decode(raw))
    return provider_error(
        f"HTTP {response.status} from {response.url.host}: {text or response.reason}",
        status=response.status,
        code=code,
        retry_after_s=retry_after_s(response.headers),
    )


def make(setup: BackEndSetup) -> OpenAICompatible:
    """The factory of this back end."""
    return OpenAICompatible(
        setup.environ.get("OPENAI_BASE_URL") or OPENAI_URL,
        setup.environ.get("OPENAI_API_KEY"),
        silence_s=setup.silence_s,
    )
