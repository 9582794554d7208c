"""OpenAI's Responses API, as strict as its vendor: what a test tells it, and the vendor's 400s.

Each request takes the next of the prepared answers; when none is left the answer is the text `done`. A
request that the vendor would refuse is answered with a 400, noted in `refused`, and takes no answer.
"""

import itertools
import json
import socket
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from tests.support.strict_forms import responses_problems

Json = dict[str, Any]

_FIELDS = {
    "model", "input", "instructions", "tools", "tool_choice", "stream", "store", "include", "reasoning",
    "text", "max_output_tokens", "prompt_cache_key", "temperature", "top_p", "parallel_tool_calls",
    "metadata",
}  # fmt: skip
_ITEMS = {
    "message": {"id", "status", "role", "content"},
    "reasoning": {"id", "summary", "encrypted_content", "content", "status"},
    "function_call": {"id", "status", "call_id", "name", "arguments"},
    "function_call_output": {"call_id", "output"},
    "custom_tool_call": {"id", "status", "call_id", "name", "input"},
    "custom_tool_call_output": {"call_id", "output"},
}
_THINKS = ("gpt-5", "o3", "o4")


def reasoning(number: int, *summary: str) -> Json:
    """An output item: a thought, encrypted."""
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {
        "type": "reasoning",
        "id": f"rs_{number}",
        "summary": parts,
        "encrypted_content": f"gAAA{number}==",
    }


def message(number: int, text: str) -> Json:
    """An output item: words."""
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {
        "type": "message",
        "id": f"msg_{number}",
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def function_call(number: int, name: str, arguments: str) -> Json:
    """An output item: a call."""
    return {
        "type": "function_call", "id": f"fc_{number}", "status": "completed", "call_id": f"call_{number}",
        "name": name, "arguments": arguments,
    }  # fmt: skip


def custom_tool_call(number: int, name: str, text: str) -> Json:
    """An output item: a call whose argument is as the model wrote it."""
    return {
        "type": "custom_tool_call", "id": f"ctc_{number}", "status": "completed",
        "call_id": f"call_{number}", "name": name, "input": text,
    }  # fmt: skip


def events(*items: Json, end: str = "completed", **fields: Any) -> list[Json]:
    """The events of a whole response with these output items; `fields` are of the response at its end."""
    found: list[Json] = [{"type": "response.created", "response": {"status": "in_progress"}}]
    for index, item in enumerate(items):
        found += _item_events(index, item)
    counts = {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 7}
    response = {"status": end, "output": list(items), "usage": counts, "error": None, **fields}
    return [*found, {"type": f"response.{end}", "response": response}]


def _item_events(index: int, item: Json) -> list[Json]:
    about = {"output_index": index, "item_id": item["id"]}
    started: Json = {**item, "status": "in_progress"}
    deltas: list[Json] = []
    match item["type"]:
        case "reasoning":
            started = {"type": "reasoning", "id": item["id"], "summary": []}
            kind = "response.reasoning_summary_text.delta"
            deltas = [{"type": kind, "delta": part["text"], **about} for part in item["summary"]]
        case "message":
            words = item["content"][0]["text"]
            started["content"] = []
            pieces = (words[: len(words) // 2], words[len(words) // 2 :])
            deltas = [{"type": "response.output_text.delta", "delta": each, **about} for each in pieces]
        case "function_call":
            started["arguments"] = ""
            kind = "response.function_call_arguments"
            deltas = [{"type": f"{kind}.delta", "delta": item["arguments"], **about}]
            deltas.append({"type": f"{kind}.done", "arguments": item["arguments"], **about})
        case "custom_tool_call":
            started["input"] = ""
            kind, text = "response.custom_tool_call_input", item["input"]
            pieces = (text[: len(text) // 2], text[len(text) // 2 :])
            deltas = [{"type": f"{kind}.delta", "delta": each, **about} for each in pieces]
            deltas.append({"type": f"{kind}.done", "input": text, **about})
        case kind:
            raise ValueError(kind)
    return [
        {"type": "response.output_item.added", "output_index": index, "item": started},
        *deltas,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


class StrictResponses:
    """The server; use as an async context manager.

    Fields:
        answers: each a list of events. errors: HTTP errors that come first: status and error object.
        requests: decoded bodies of all requests that were answered. refused: why others were not.
    """

    starts = "process"

    def __init__(self) -> None:
        self.answers: list[list[Json]] = []
        self.errors: list[tuple[int, Json]] = []
        self.requests: list[Json] = []
        self.refused: list[str] = []
        self._issued: dict[str, Json] = {}  # output items by id
        self._after: dict[str, str] = {}  # by id of a reasoning item, the id of the item behind it
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> "StrictResponses":
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/responses", self._respond)
        app.router.add_get("/v1/models/{model}", self._model)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(self._runner, listener).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _model(self, http: web.Request) -> web.StreamResponse:
        if http.headers.get("Authorization") != "Bearer test":
            error = {"message": "Incorrect API key provided", "code": "invalid_api_key"}
            return web.json_response({"error": error}, status=401)
        name = http.match_info["model"]
        if not name.startswith(("gpt", "o")):
            error = {"message": f"The model '{name}' does not exist", "code": "model_not_found"}
            return web.json_response({"error": error}, status=404)
        return web.json_response({"id": name, "object": "model"})

    async def _respond(self, http: web.Request) -> web.StreamResponse:
        body = await http.json()
        problems = (self._problems(body), responses_problems(body), self._input_problems(body["input"]))
        if found := list(itertools.chain(*problems)):
            self.refused += found
            error = {
                "message": "; ".join(found),
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
            return web.json_response({"error": error}, status=400)
        self.requests.append(body)
        if self.errors:
            status, error = self.errors.pop(0)
            return web.json_response({"error": error}, status=status)
        answer = self.answers.pop(0) if self.answers else events(message(len(self.requests) + 1000, "done"))
        self._note(answer)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        for number, event in enumerate(answer):
            line = f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
            await response.write(line.encode())
        return response

    def _note(self, answer: list[Json]) -> None:
        items = [event["item"] for event in answer if event["type"] == "response.output_item.done"]
        self._issued |= {item["id"]: item for item in items}
        thoughts = ((a, b) for a, b in itertools.pairwise(items) if a["type"] == "reasoning")
        self._after |= {thought["id"]: behind["id"] for thought, behind in thoughts}

    @staticmethod
    def _problems(body: Json) -> Iterable[str]:
        for name in sorted(set(body) - _FIELDS):
            yield f"Unknown parameter: '{name}'."
        if len(body.get("prompt_cache_key", "")) > 64:
            yield "Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64."
        thinks = body["model"].startswith(_THINKS)
        if "reasoning" in body and not thinks:
            yield "Unsupported parameter: 'reasoning.effort' is not supported with this model."
        if "temperature" in body and thinks:
            yield "Unsupported parameter: 'temperature' is not supported with this model."
        if not thinks and any(tool["type"] == "custom" for tool in body.get("tools", ())):
            yield "Invalid value: 'custom'. Supported values are: 'function'."
        if "include" in body and not thinks:
            yield "Encrypted content is not supported with this model."

    def _input_problems(self, items: list[Json]) -> Iterable[str]:
        calls: dict[str, str] = {}  # their kinds by id
        answered: set[str] = set()
        for number, item in enumerate(items):
            where, kind = f"input[{number}]", item.get("type", "")
            if kind not in _ITEMS:
                yield f"Invalid value: '{kind}'. Supported values are: {sorted(_ITEMS)} ({where}.type)"
                continue
            for name in sorted(set(item) - _ITEMS[kind] - {"type"}):
                yield f"Unknown parameter: '{where}.{name}'."
            if "id" in item and self._issued.get(item["id"]) != item:
                yield f"Item with id '{item['id']}' not found. Items are not persisted when `store` is false."
            if kind == "reasoning":
                yield from self._reasoning_problems(items, number)
            elif kind == "message":
                yield from _content_problems(item, where)
            elif kind in ("function_call", "custom_tool_call"):
                calls[item["call_id"]] = kind
            elif f"{calls.get(item['call_id'])}_output" != kind:
                yield f"No tool call found for {kind} with call_id {item['call_id']}."
            else:
                answered.add(item["call_id"])
        for missing in sorted(calls.keys() - answered):
            yield f"No tool output found for function call {missing}."

    def _reasoning_problems(self, items: list[Json], number: int) -> Iterable[str]:
        item = items[number]
        behind = items[number + 1] if number + 1 < len(items) else {}
        if not item.get("encrypted_content"):
            yield f"Item with id '{item['id']}' not found. Items are not persisted when `store` is false."
        elif behind.get("id") != self._after.get(item["id"]):
            yield f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."


def _content_problems(item: Json, where: str) -> Iterable[str]:
    wanted = {"user": {"input_text", "input_image"}, "assistant": {"output_text", "refusal"}}[item["role"]]
    for number, part in enumerate(item["content"]):
        if part["type"] not in wanted:
            yield f"Invalid value: '{part['type']}' ({where}.content[{number}].type)"
