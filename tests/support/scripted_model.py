"""An OpenAI-compatible HTTP server whose model follows `script.py`. It outlives everything that is killed.

    python -m tests.support.scripted_model --port 9000 --log model.jsonl [--fsync]

The log has two JSON lines for each request, with `CLOCK_MONOTONIC` nanoseconds that all processes of this
machine share: `request` as soon as it was read (what the model was shown) and `answer` at its end.
"""

import argparse
import asyncio
import contextlib
import functools
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import uvloop
from aiohttp import web

from tests.support.ports import free_port
from tests.support.script import DEFAULT_COMMAND, WORD, Message, Move, names, problems, text_of
from tests.support.script import decide as decide_by_words
from tests.support.waiting import WAIT_S

MODEL = "scripted"
_decoder = msgspec.json.Decoder(dict[str, Any])
_SSE_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
_TICK_S = 0.005  # up to 200 words a second come one by one


def _chunk(delta: dict[str, Any], finish: str | None = None, usage: dict[str, int] | None = None) -> bytes:
    body: dict[str, Any] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    if usage:
        body["usage"] = usage
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


_ROLE = _chunk({"role": "assistant", "content": ""})
_WORD_CHUNK = _chunk({"content": WORD})
_TOOLS_STOP = _chunk({}, "tool_calls")
_DONE = b"data: [DONE]\n\n"


@functools.lru_cache(maxsize=4096)
def _pieces(text: str) -> list[bytes]:
    """The chunks of a text, a word each; lines stay lines."""
    count, rest = divmod(len(text), len(WORD))
    if not rest and text == WORD * count:
        return [_WORD_CHUNK] * count
    return [_chunk({"content": word + " "}) for word in text.split(" ")]


def _call_pieces(move: Move) -> list[bytes]:
    pieces = []
    for index, call in enumerate(move.calls):
        half = len(call.arguments) // 2
        head = {"id": call.id, "type": "function"}
        for extra, function in (
            (head, {"name": call.name, "arguments": ""}),
            ({}, {"arguments": call.arguments[:half]}),
            ({}, {"arguments": call.arguments[half:]}),
        ):
            pieces.append(_chunk({"tool_calls": [{"index": index, **extra, "function": function}]}))
    return pieces


def _usage(size: int, pieces: int) -> dict[str, int]:
    prompt = size // 4
    return {"prompt_tokens": prompt, "completion_tokens": pieces, "total_tokens": prompt + pieces}


class ScriptedModel:
    """The server. `start` and `stop` it inside a running loop, or run the module as a process."""

    starts = "process"

    def __init__(
        self,
        log: Path | None = None,
        *,
        fsync: bool = False,
        command: str = DEFAULT_COMMAND,
        decide: Callable[[list[Message]], Move] | None = None,
    ) -> None:
        self._fd = -1 if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._fsync = fsync
        self._decide = decide or functools.partial(decide_by_words, command=command)
        self._troubles: Counter[tuple[str, str]] = Counter()
        self._number = 0
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, port: int = 0) -> "ScriptedModel":
        """Listen on the loopback interface; `url` ends with `/v1`."""
        app = web.Application(client_max_size=256 << 20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        await web.SockSite(self._runner, listener, backlog=1024).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # -- routes --------------------------------------------------------------

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        body = await http.read()
        received = time.monotonic_ns()
        self._number += 1
        number = self._number
        try:
            request = _decoder.decode(body)
        except msgspec.DecodeError as error:
            self._write({"event": "request", "n": number, "t": received, "problems": [f"no JSON: {error}"]})
            return _error(400, "invalid_request_error", "the body is no JSON object")
        found = problems(request)
        move = self._decide(request["messages"]) if not found else None
        self._log_request(number, received, body, request, move, found)
        if move is None:
            return _error(400, "invalid_request_error", "; ".join(found))
        if move.plan.stall_s:
            await asyncio.sleep(move.plan.stall_s)
        answer: dict[str, Any] = {"event": "answer", "n": number}
        try:
            if trouble := self._trouble(move):
                answer["trouble"] = trouble
                if trouble != "cut":
                    return _refusal(trouble)
            cut = answer.get("trouble") == "cut"
            if request.get("stream"):
                return await self._stream(http, request, move, len(body), answer, cut=cut)
            return _whole(move, len(body))
        finally:
            answer["t"] = time.monotonic_ns()
            self._write(answer)

    def _trouble(self, move: Move) -> str:
        for word, times in move.plan.trouble.items():
            key = (move.plan.name, word)
            if self._troubles[key] < times:
                self._troubles[key] += 1
                return word
        return ""

    async def _stream(
        self,
        http: web.Request,
        request: dict[str, Any],
        move: Move,
        size: int,
        answer: dict[str, Any],
        *,
        cut: bool,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_SSE_HEADERS)
        await response.prepare(http)
        pieces = _call_pieces(move) if move.calls else _pieces(move.text)
        if cut:
            await response.write(_ROLE + b"".join(pieces[: len(pieces) // 2]) + b'data: {"choices": [{"in')
            assert http.transport is not None
            http.transport.abort()
            return response
        tail = _TOOLS_STOP if move.calls else _chunk({}, move.plan.finish)
        if (request.get("stream_options") or {}).get("include_usage"):
            tail += _chunk({}, usage=_usage(size, len(pieces)))
        answer["first"] = time.monotonic_ns()
        if move.plan.rate:
            await response.write(_ROLE)
            await _paced(response, pieces, move.plan.rate)
            await response.write(tail + _DONE)
        else:
            await response.write(_ROLE + b"".join(pieces) + tail + _DONE)
        await response.write_eof()
        answer["whole"] = True
        return response

    # -- log -----------------------------------------------------------------

    def _log_request(
        self,
        number: int,
        received: int,
        body: bytes,
        request: dict[str, Any],
        move: Move | None,
        found: list[str],
    ) -> None:
        if self._fd < 0:
            return
        messages = [m for m in request.get("messages") or [] if isinstance(m, dict)]
        tools = request.get("tools") or []
        seen = [name for m in messages if m.get("role") == "user" for name in names(text_of(m))]
        line: dict[str, Any] = {
            "event": "request",
            "n": number,
            "t": received,
            "bytes": len(body),
            "messages": len(messages),
            "digest": hashlib.blake2b(body, digest_size=8).hexdigest(),
            "seen": seen,
            "tools": len(tools),
            "tools_digest": hashlib.blake2b(json.dumps(tools).encode(), digest_size=8).hexdigest(),
        }
        if move is not None:
            line |= {"plan": move.plan.name, "turn": move.turn, "calls": [call.id for call in move.calls]}
        if found:
            line["problems"] = found
        self._write(line, durable=self._fsync)

    def _write(self, line: dict[str, Any], *, durable: bool = False) -> None:
        if self._fd < 0:
            return
        os.write(self._fd, msgspec.json.encode(line) + b"\n")
        if durable:
            os.fsync(self._fd)


async def _paced(response: web.StreamResponse, pieces: list[bytes], rate: float) -> None:
    began = time.monotonic()
    sent = 0
    while sent < len(pieces):
        due = min(len(pieces), int((time.monotonic() - began) * rate) + 1)
        if due > sent:
            await response.write(b"".join(pieces[sent:due]))
            sent = due
        await asyncio.sleep(max(_TICK_S, 1 / rate) if sent < len(pieces) else 0)


def _whole(move: Move, size: int) -> web.Response:
    message: dict[str, Any] = {"role": "assistant", "content": move.text or None}
    if move.calls:
        message["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in move.calls
        ]
    finish = "tool_calls" if move.calls else move.plan.finish
    return web.json_response(
        {
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": _usage(size, len(move.text.split())),
        }
    )


def _error(status: int, kind: str, text: str, code: str | None = None) -> web.Response:
    headers = {"Retry-After": "0"} if status == 429 else {}
    error = {"message": text, "type": kind, "code": code, "param": None}
    return web.json_response({"error": error}, status=status, headers=headers)


def _refusal(trouble: str) -> web.Response:
    if trouble == "overflow":
        text = (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000."
        )
        return _error(400, "invalid_request_error", text, "context_length_exceeded")
    if trouble == "429":
        return _error(429, "rate_limit_error", "Rate limit reached", "rate_limit_exceeded")
    return _error(int(trouble), "server_error", "scripted trouble")


class ModelProcess:
    """The server as a process of its own; use as a context manager."""

    starts = "process"
    module = "tests.support.scripted_model"

    def __init__(self, log: Path, *, fsync: bool = True, command: str = DEFAULT_COMMAND) -> None:
        self.port = free_port()
        self.log = log
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self._arguments = ["--port", str(self.port), "--log", str(log), "--command", command]
        self._arguments += ["--fsync"] if fsync else []
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ModelProcess":
        with self.log.with_suffix(".err").open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, *self._arguments],
                stdout=err,
                stderr=err,
                cwd=Path(__file__).parents[2],
            )
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 0.5):
                return self
            time.sleep(0.02)
        self.__exit__(None, None, None)
        raise AssertionError(self.log.with_suffix(".err").read_text()[-2000:])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=WAIT_S)


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a model's log so far; a line that is still being written is left out."""
    if not path.exists():
        return []
    whole = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line]


async def _serve(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    model = ScriptedModel(arguments.log, fsync=arguments.fsync, command=arguments.command)
    await model.start(arguments.port)
    print(model.url, flush=True)
    await stop.wait()
    await model.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--fsync", action="store_true", help="sync each line of the log of requests")
    parser.add_argument("--command", default=DEFAULT_COMMAND, help="template with {op} and {sleep}")
    uvloop.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
