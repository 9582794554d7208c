"""Back ends: the demo model's script, and what a direct back end makes of a provider's answers."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fairlead_agent.models import openai_compatible
from fairlead_agent.models.demo import DemoModel
from fairlead_agent.models.interface import (
    Finish,
    ModelError,
    ModelRequest,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolCallPiece,
)
from fairlead_agent.models.openai_compatible import OpenAICompatible
from fairlead_agent.models.registry import Registry
from fairlead_agent.turn import Reply
from fairlead_common.errors import InvalidInputError
from fairlead_common.messages import ToolSpec

TOOLS = [ToolSpec(name=name, description="", parameters={}) for name in ("bash", "read", "write", "glob")]


def request(*messages: dict[str, Any]) -> ModelRequest:
    wire = ",".join(json.dumps(message) for message in messages).encode()
    return ModelRequest(model="m", messages=wire, tools=TOOLS, tools_wire=b"[]")


async def pieces(stream: AsyncIterator[list[Piece]]) -> list[Piece]:
    return [piece async for batch in stream for piece in batch]


async def demo(*messages: dict[str, Any]) -> list[Piece]:
    return await pieces(DemoModel(lambda: 0.0).stream(request(*messages)))


async def test_demo_calls_the_tools_it_is_asked_for_one_after_the_other() -> None:
    user = {"role": "user", "content": "please\nwrite: a.txt: hello: you\nrun: cat a.txt"}
    first = await demo(user)
    call = next(piece for piece in first if isinstance(piece, ToolCallPiece))
    assert (call.name, json.loads(call.arguments)) == ("write", {"path": "a.txt", "content": "hello: you\n"})
    result = {"role": "tool", "tool_call_id": "x", "content": "ok"}
    second = await demo(user, {"role": "assistant", "content": None}, result)
    call = next(piece for piece in second if isinstance(piece, ToolCallPiece))
    assert (call.name, json.loads(call.arguments)) == ("bash", {"command": "cat a.txt"})
    last = await demo(user, result, {"role": "tool", "tool_call_id": "y", "content": "hello: you"})
    assert "hello: you" in "".join(piece.text for piece in last if isinstance(piece, TextPiece))
    assert isinstance(last[-1], Finish)


async def test_demo_thinks_and_explains_itself() -> None:
    said = await demo({"role": "user", "content": "hello"})
    assert any(isinstance(piece, ThinkingPiece) for piece in said)
    assert "run: ls -la" in "".join(piece.text for piece in said if isinstance(piece, TextPiece))


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def ask(answer: Answer, model: str = "m") -> tuple[list[Piece], list[dict[str, object]]]:
    bodies: list[dict[str, object]] = []

    async def chat(http: web.Request) -> web.StreamResponse:
        bodies.append(await http.json())
        return await answer(http)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "first"}, {"id": "second"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    backend = None
    async with TestServer(app) as server:
        backend = OpenAICompatible(str(server.make_url("/v1")), "key", silence_s=2)
        try:
            made = ModelRequest(
                model=model, messages=b'{"role":"user","content":"hi"}', tools=[], tools_wire=b"[]"
            )
            return await pieces(backend.stream(made)), bodies
        finally:
            await backend.close()


_FUNCTION = {"name": "bash", "arguments": "{}"}


def _chunk(*choices: object, **fields: object) -> str:
    return f"data: {json.dumps({'choices': choices, **fields})}\n\n"


def stream(*lines: str) -> Answer:
    async def answer(http: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        for line in lines:
            await response.write(line.encode())
        return response

    return answer


def refuse(status: int, text: str, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": text}}, status=status, headers=headers)

    return answer


async def test_stream_is_read_however_it_is_cut() -> None:
    said, bodies = await ask(
        stream(
            'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\nda',
            'ta: {"choices":[{"delta":{"content":"Hel',
            'lo"}}]}\r\n\r\n: comment\n\n',
            _chunk({"delta": {"tool_calls": [{"index": 0, "id": "c", "function": _FUNCTION}]}}),
            _chunk({"delta": {}, "finish_reason": "tool_calls"}),
            _chunk(usage={"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}),
            "data: [DONE]\n\n",
        )
    )
    assert said[:3] == [ThinkingPiece("hm"), TextPiece("Hello"), ToolCallPiece(0, "{}", "c", "bash")]
    finish = said[3]
    assert isinstance(finish, Finish)
    assert (finish.stop_reason, finish.usage.input_tokens, finish.usage.cache_read_tokens) == (
        "tool_use",
        5,
        4,
    )
    assert bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(("end", "connections"), [("later", 1), ("never", 2), ("cut", 2)])
async def test_connection_serves_the_next_request_if_the_answer_ends(
    end: str, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of an answer comes in a packet of its own, after the mark that it is over."""
    monkeypatch.setattr(openai_compatible, "END_S", 0.02 if end == "never" else 5.0)
    taken, ports, over, answered = asyncio.Event(), [], asyncio.Event(), 0

    async def answer(http: web.Request) -> web.StreamResponse:
        assert http.transport is not None
        ports.append(http.transport.get_extra_info("peername")[1])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        await response.write(f"{_chunk({'finish_reason': 'stop'})}data: [DONE]\n\n".encode())
        await taken.wait()
        taken.clear()
        if end == "never":
            await over.wait()
        elif end == "cut":
            http.transport.abort()
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        backend = OpenAICompatible(str(server.make_url("/v1")), "key", silence_s=2)
        try:
            for _ in range(2):
                async with asyncio.timeout(10):
                    async for batch in backend.stream(request({"role": "user", "content": "hi"})):
                        if batch[-1:] == [Finish("stop")]:
                            answered += 1
                            taken.set()
        finally:
            over.set()
            await backend.close()
    assert (answered, len(ports), len(set(ports))) == (2, 2, connections)


async def test_server_that_does_not_stream_is_understood() -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]})

    said, _ = await ask(answer)
    assert said[0] == TextPiece("hi")


async def test_model_auto_is_the_first_that_the_server_names() -> None:
    _, bodies = await ask(stream("data: [DONE]\n\n"), model="auto")
    assert bodies[0]["model"] == "first"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refuse(401, "bad key"), "auth"),
        (refuse(429, "slow down", **{"Retry-After": "7"}), "retryable"),
        (refuse(500, "oops"), "retryable"),
        (refuse(400, "bad request"), "fatal"),
        (refuse(400, "This model's maximum context length is 10 tokens"), "overflow"),
        (stream('data: {"choices":[{"delta":{"content":"Hel"}}]}\n\n'), "retryable"),
        (stream('data: {"error":{"message":"overloaded"}}\n\n'), "retryable"),
        (stream("data: nonsense\n\n"), "retryable"),
    ],
)
async def test_errors_are_sorted_by_what_helps(answer: Answer, kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        await ask(answer)
    assert caught.value.kind == kind
    if "slow down" in str(caught.value):
        assert caught.value.retry_after_s == 7


@pytest.mark.parametrize("name", ["", "gpt-5", "openai", "openai/", "other/x"])
def test_model_name_of_no_known_form_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="must be demo, openai/<model> or litellm/"):
        Registry(None, {}).resolve(name)  # type: ignore[arg-type]


def test_reply_keeps_blocks_in_order_and_joins_their_pieces() -> None:
    reply = Reply("m1", "host")
    for piece in (
        ThinkingPiece("h"),
        ThinkingPiece("m", "sig"),
        TextPiece("a"),
        TextPiece("b"),
        ToolCallPiece(0, '{"x"', "p1", "bash"),
        ToolCallPiece(1, "{}", "p2", "read"),
        ToolCallPiece(0, ": 1}"),
        ToolCallPiece(2, "no json", "p3", "read"),
        Finish("stop"),
    ):
        reply.add(piece)
    message = reply.message("m")
    assert message.text == "ab"
    assert message.stop_reason == "tool_use"
    calls = message.tool_calls
    assert [(call.call_id, call.name, call.arguments) for call in calls] == [
        ("m1_2", "bash", {"x": 1}),
        ("m1_3", "read", {}),
        ("m1_4", "read", None),
    ]
    assert calls[2].raw_arguments == "no json"
    assert all(call.host == "host" for call in calls)
    assert reply.message("m", cut="aborted").tool_calls == []
