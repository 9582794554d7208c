"""Servers of chat completions, each as strict as its vendor: OpenAI, DeepSeek, Gemini and OpenRouter.

They answer what a test tells them, and refuse with the vendor's own 400 what the vendor refuses: fields that
it does not know, reasoning that is missing or was altered, images in results, roles out of order, long ids,
five breakpoints. A request that is refused is noted in `refused` and takes no answer.
"""

import base64
import json
import socket
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from aiohttp import web

from tests.support.script import problems
from tests.support.strict_forms import chat_problems
from tests.support.strict_model import MAX_BREAKPOINTS, SSE

Json = dict[str, Any]

_FIELDS = {"model", "messages", "tools", "tool_choice", "stream", "stream_options", "temperature", "top_p"}
_OPENAI_FIELDS = {
    *("max_completion_tokens", "reasoning_effort", "prompt_cache_key", "parallel_tool_calls"),
    "response_format",
}
_DETAILS = {"type", "text", "summary", "data", "signature", "format", "index", "id"}
_MISSING_SIGNATURE = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work "
    "correctly, and missing thought_signature may lead to degraded model performance. Additional data, "
    "function call `default_api:{}`, position {}."
)
_ANY_SIGNATURE = "skip_thought_signature_validator"  # that Google documents for calls of other models


class Reply(NamedTuple):
    """What the model says: a thought, words, and calls by id and name.

    Fields:
        arguments: of each call, as JSON; those that are left out have none.
    """

    thought: str
    words: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()


class StrictChat:
    """The server of one vendor; use as an async context manager.

    Fields:
        replies: prepared answers; when none is left the answer is the text `done`.
        requests: decoded bodies of all requests that were answered. refused: why others were not.
    """

    starts = "process"

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor
        self.replies: list[Reply] = []
        self.requests: list[Json] = []
        self.refused: list[str] = []
        self._issued: dict[str, Json] = {}  # by the id of a call, what must come back with its reply
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> "StrictChat":
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(self._runner, listener).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        if found := [*self._shared_problems(body), *_RULES[self.vendor](self, body)]:
            self.refused += found
            error = {"message": found[0], "type": "invalid_request_error", "param": None, "code": None}
            return web.json_response({"error": error}, status=400)
        self.requests.append(body)
        reply = self.replies.pop(0) if self.replies else Reply("", "done")
        response = web.StreamResponse(headers=SSE)
        await response.prepare(http)
        for delta in self._deltas(reply):
            await response.write(_chunk([{"index": 0, "delta": delta, "finish_reason": None}]))
        finish = "tool_calls" if reply.calls else "stop"
        await response.write(_chunk([{"index": 0, "delta": {}, "finish_reason": finish}]))
        usage = {"prompt_tokens": 30, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}}
        await response.write(_chunk([], usage=usage))
        await response.write(b"data: [DONE]\n\n")
        return response

    # -- what it says ----------------------------------------------------------

    def _deltas(self, reply: Reply) -> Iterable[Json]:
        back: Json = {}
        if reply.thought:
            yield from _THOUGHTS[self.vendor](reply.thought, back)
        if reply.words:
            half = len(reply.words) // 2
            yield {"content": reply.words[:half]}
            yield {"content": reply.words[half:]}
        for index, (call_id, name) in enumerate(reply.calls):
            call: Json = {"index": index, "id": call_id, "type": "function"}
            call["function"] = {"name": name, "arguments": ""}
            if self.vendor == "gemini" and not index:  # of parallel calls the first is signed
                call["extra_content"] = {"google": {"thought_signature": f"G-{call_id}"}}
                back["extra_content"] = call["extra_content"]
            self._issued[call_id] = back
            yield {"tool_calls": [call]}
            arguments = reply.arguments[index] if index < len(reply.arguments) else "{}"
            yield {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}

    # -- what all of them refuse -------------------------------------------------

    def _shared_problems(self, body: Json) -> Iterable[str]:
        messages = [{**each} for each in body["messages"]]
        for message in messages:
            for name in ("reasoning_content", "reasoning", "reasoning_details", "extra_content"):
                message.pop(name, None)
        for found in problems({**body, "messages": messages}):
            if not ("string too long" in found and any(own in found for own in self._issued)):
                yield found
        if any(each["role"] == "system" for each in messages[1:]):
            yield "System message must be at the beginning."
        for message in messages:
            for part in message["content"] if isinstance(message["content"], list) else ():
                if part.get("cache_control") and self.vendor != "openrouter":
                    yield "Unknown parameter: 'messages.content.cache_control'."

    def own_fields(self, body: Json, known: set[str], fields: set[str]) -> Iterable[str]:
        """Fields of the request and of replies that the vendor does not know."""
        for name in sorted(set(body) - _FIELDS - known):
            yield f"Unknown parameter: '{name}'."
        own = {"reasoning_content", "reasoning", "reasoning_details", "extra_content"}
        for number, message in enumerate(body["messages"]):
            for name in sorted(set(message) & own - fields):
                yield f"Additional properties are not allowed ('{name}' was unexpected) - 'messages.{number}'"
            for call in message.get("tool_calls") or ():
                for name in sorted(set(call) - {"id", "type", "function"} - fields):
                    yield f"Unknown parameter: 'messages[{number}].tool_calls[0].{name}'."

    def issued(self, message: Json) -> Json | None:
        """What the vendor sent with the calls of a reply, if it was the one that made them."""
        calls = message.get("tool_calls") or [{"id": ""}]
        return self._issued.get(calls[0]["id"])


def _replies(body: Json) -> Iterable[tuple[int, Json]]:
    return ((number, each) for number, each in enumerate(body["messages"]) if each["role"] == "assistant")


# -- OpenAI ------------------------------------------------------------------------


def _openai(server: StrictChat, body: Json) -> Iterable[str]:
    if "max_tokens" in body:
        yield "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    if "temperature" in body:
        yield "Unsupported value: 'temperature' does not support 0.5 with this model."
    if body.get("reasoning_effort", "low") not in ("minimal", "low", "medium", "high"):
        yield f"Unsupported value: 'reasoning_effort' does not support '{body['reasoning_effort']}'."
    if len(body.get("prompt_cache_key", "")) > 64:
        yield "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64."
    if body.get("max_completion_tokens", 0) > 128_000:
        yield "max_tokens is too large: This model supports at most 128000 completion tokens."
    yield from server.own_fields(body, _OPENAI_FIELDS, set())
    yield from chat_problems(body)


def _no_thought(_: str, __: Json) -> Iterable[Json]:  # its chat completions show none
    return ()


# -- DeepSeek ----------------------------------------------------------------------


def _deepseek(server: StrictChat, body: Json) -> Iterable[str]:
    fields = {"max_tokens", "thinking", "reasoning_effort", "response_format"}
    yield from server.own_fields(body, fields, {"reasoning_content"})
    if body.get("response_format", {"type": "json_object"}) != {"type": "json_object"}:
        yield "This response_format type is unavailable now"
    if body.get("thinking", {"type": "enabled"}) == {"type": "disabled"}:
        return
    for number, message in _replies(body):
        back, issued = message.get("reasoning_content"), server.issued(message)
        if not back:
            yield "The `reasoning_content` in the thinking mode must be passed back to the API."
        elif issued is not None and back != issued["reasoning_content"]:
            yield f"The `reasoning_content` of message {number} was altered."


def _reasoning_content(thought: str, back: Json) -> Iterable[Json]:
    back["reasoning_content"] = thought
    for word in thought.partition(" "):
        yield {"reasoning_content": word, "content": None}


# -- Gemini ------------------------------------------------------------------------


def _gemini(server: StrictChat, body: Json) -> Iterable[str]:
    fields = {"max_tokens", "max_completion_tokens", "reasoning_effort", "extra_body", "response_format"}
    if "response_format" in body and body.get("tools") and body.get("tool_choice") != "none":
        yield "Function calling with a response mime type: 'application/json' is unsupported"
    yield from server.own_fields(body, fields, {"extra_content"})
    if body.get("reasoning_effort", "low") not in ("none", "minimal", "low", "medium", "high"):
        yield f"Invalid reasoning_effort: {body['reasoning_effort']}"
    for number, message in _replies(body):
        for index, call in enumerate(message.get("tool_calls") or ()):
            signature = call.get("extra_content", {}).get("google", {}).get("thought_signature")
            issued = (server.issued(message) or {}).get("extra_content", {}).get("google", {})
            wanted = issued.get("thought_signature", _ANY_SIGNATURE) if not index else None
            if not index and not signature:
                yield _MISSING_SIGNATURE.format(call["function"]["name"], number)
            elif signature != wanted:
                yield "Thought signature is not valid."


def _unseen(_: str, __: Json) -> Iterable[Json]:  # it is in the signature of the call
    return ()


# -- OpenRouter, with Claude behind it -----------------------------------------------


def _openrouter(server: StrictChat, body: Json) -> Iterable[str]:
    fields = {"max_tokens", "reasoning", "usage", "response_format"}
    yield from server.own_fields(body, fields, {"reasoning_details", "reasoning"})
    if (found := json.dumps(body).count('"cache_control"')) > MAX_BREAKPOINTS:
        yield f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {found}."
    asked = body.get("reasoning", {})
    if asked.get("effort", "low") not in ("none", "minimal", "low", "medium", "high", "xhigh"):
        yield f"reasoning.effort: Invalid option: {asked['effort']}"
    last = max((number for number, _ in _replies(body)), default=-1)
    for number, message in _replies(body):
        back, issued = message.get("reasoning_details"), server.issued(message)
        if back is not None and any(set(detail) - _DETAILS for detail in back):
            yield f"messages.{number}.reasoning_details: Unrecognized key"
        if issued is not None and back is not None and back != issued.get("reasoning_details"):
            yield f"messages.{number}: Invalid `signature` in `thinking` block"
        if number == last and asked and message.get("tool_calls") and not back:
            yield f"messages.{number}.content.0.type: Expected `thinking`, but found `tool_use`."


def _reasoning_details(thought: str, back: Json) -> Iterable[Json]:
    about = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    signature = base64.b64encode(thought.encode()).decode()
    back["reasoning_details"] = [{**about, "text": thought, "signature": signature}]
    for word in thought.partition(" "):
        yield {"reasoning": word, "reasoning_details": [{**about, "text": word}]}
    yield {"reasoning": None, "reasoning_details": [{**about, "signature": signature}]}


_RULES: dict[str, Callable[[StrictChat, Json], Iterable[str]]] = {
    "openai": _openai,
    "deepseek": _deepseek,
    "gemini": _gemini,
    "openrouter": _openrouter,
}
_THOUGHTS: dict[str, Callable[[str, Json], Iterable[Json]]] = {
    "openai": _no_thought,
    "deepseek": _reasoning_content,
    "gemini": _unseen,
    "openrouter": _reasoning_details,
}


def _chunk(choices: list[Json], **fields: Any) -> bytes:
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return f"data: {json.dumps({**body, **fields})}\n\n".encode()
