"""Any server that speaks OpenAI's chat completions over HTTP, without a library in between.

A chunk costs a few microseconds here and hundreds in a general client, and at thousands of tokens
a second that is the difference between a busy core and an idle one.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import aiohttp
import msgspec

from fairlead_agent.models.interface import (
    Finish,
    ModelError,
    ModelRequest,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolCallPiece,
)
from fairlead_common.content import StopReason, Usage


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Cached | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


_decode = msgspec.json.Decoder(_Chunk).decode

_STOP: dict[str, StopReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "stop",
}
_OVERFLOW = re.compile(
    r"context.{0,20}(length|window|size)|maximum context|too many tokens|prompt is too long",
    re.IGNORECASE,
)
END_S = 0.02  # less than a new connection to any provider takes
_EFFORTS = {"minimal", "low", "medium", "high"}


class OpenAICompatible:
    """The back end for one base URL and key."""

    def __init__(self, base_url: str, api_key: str | None, *, silence_s: float) -> None:
        self._url = base_url.rstrip("/")
        self._key = api_key
        self._silence_s = silence_s
        self._http: aiohttp.ClientSession | None = None
        self._first_model: str | None = None

    async def close(self) -> None:
        """Close pooled connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[Piece]]:
        """See `Model.stream`."""
        model = request.model if request.model != "auto" else await self._auto_model()
        try:
            async with self._session().post(
                f"{self._url}/chat/completions", data=_body(request, model), headers=_JSON
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
                timeout=aiohttp.ClientTimeout(total=None, connect=15, sock_read=self._silence_s),
                read_bufsize=256 * 1024,
            )
        return self._http

    async def _auto_model(self) -> str:
        if self._first_model is None:
            try:
                async with self._session().get(f"{self._url}/models") as response:
                    if response.status != 200:
                        raise await _refusal(response)
                    listing = msgspec.json.decode(await response.read())
                self._first_model = str(listing["data"][0]["id"])
            except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, LookupError, TypeError) as error:
                raise ModelError("fatal", f"{self._url}/models names no model: {error}") from error
        return self._first_model


_JSON = {"Content-Type": "application/json", "Accept": "text/event-stream"}


def _body(request: ModelRequest, model: str) -> bytes:
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
    parts = [msgspec.json.encode(options)[:-1], b',"messages":[', request.messages, b"]"]
    if request.tools:
        parts += [b',"tools":', request.tools_wire]
    return b"".join([*parts, b"}"])


async def _pieces(response: aiohttp.ClientResponse) -> AsyncIterator[list[Piece]]:
    if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
        chunk = _parse(await response.read())  # a server that does not stream
        usage = chunk.usage
        yield [*_of_choices(chunk), Finish(_finish(chunk) or "stop", _usage(usage))]
        return
    buffer = b""
    stop: StopReason | None = None
    usage = None
    finished = False
    async for data in response.content.iter_any():
        lines = (buffer + data).split(b"\n")
        buffer = lines.pop()
        batch: list[Piece] = []
        for line in lines:
            if not line.startswith(b"data:"):
                continue
            payload = line[5:].strip()
            if payload == b"[DONE]":
                finished = True
                break
            chunk = _parse(payload)
            usage = chunk.usage or usage
            stop = _finish(chunk) or stop
            batch += _of_choices(chunk)
        if batch:
            yield batch
        if finished:
            break
    if stop is None and not finished:
        raise ModelError("retryable", "the provider cut the answer off in the middle")
    yield [Finish(stop or "stop", _usage(usage))]
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
        raise ModelError("retryable", f"the provider sent something that is no chunk: {error}") from error
    if chunk.error is not None and bytes(chunk.error) != b"null":
        text = bytes(chunk.error).decode("utf-8", "replace")[:500]
        raise ModelError("overflow" if _OVERFLOW.search(text) else "retryable", text)
    return chunk


def _of_choices(chunk: _Chunk) -> list[Piece]:
    if not chunk.choices:
        return []
    delta = chunk.choices[0].delta or chunk.choices[0].message
    if delta is None:
        return []
    pieces: list[Piece] = []
    if thought := delta.reasoning_content or delta.reasoning:
        pieces.append(ThinkingPiece(thought))
    if delta.content:
        pieces.append(TextPiece(delta.content))
    for call in delta.tool_calls or ():
        function = call.function or _Function()
        pieces.append(ToolCallPiece(call.index, function.arguments or "", call.id, function.name))
    return pieces


def _finish(chunk: _Chunk) -> StopReason | None:
    reason = chunk.choices[0].finish_reason if chunk.choices else None
    return None if reason is None else _STOP.get(reason, "stop")


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
    text = raw.decode("utf-8", "replace").strip()
    try:
        body = msgspec.json.decode(raw)
        error = body.get("error", body) if isinstance(body, dict) else body
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    except msgspec.DecodeError:
        pass
    text = f"HTTP {response.status} from {response.url.host}: {text[:1000] or response.reason}"
    if response.status in (401, 403):
        return ModelError("auth", text)
    if response.status in (408, 409, 425, 429) or response.status >= 500:
        after = response.headers.get("Retry-After", "")
        code = "model_rate_limited" if response.status == 429 else ""
        return ModelError("retryable", text, float(after) if after.isdigit() else None, code=code)
    return ModelError("overflow" if response.status == 413 or _OVERFLOW.search(text) else "fatal", text)
