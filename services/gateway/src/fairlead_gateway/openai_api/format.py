"""Chat completions as OpenAI writes them: whole, or as chunks of a stream."""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from starlette.responses import Response

from fairlead_common.protocol.content import ToolCallBlock, Usage
from fairlead_gateway.http.problems import Problem, json_response
from fairlead_gateway.openai_api.answer import AnswerPiece, ChatAnswer
from fairlead_gateway.openai_api.shapes import (
    AwaitedApproval,
    Called,
    ChatCompletion,
    Choice,
    CompletionMessage,
    CompletionUsage,
    FairleadAnswer,
    PromptTokens,
    ToolCalled,
)

_ENCODE: Final = msgspec.json.Encoder().encode


class CompletionOptions(NamedTuple):
    """What the client asked for: an answer as a stream or whole, and the usage at the end of a stream."""

    model: str
    stream: bool
    usage: bool


class ChatEnding(NamedTuple):
    """What an answer ends with.

    Fields:
        calls: of tools of the client. fairlead: of an answer of an agent.
    """

    finish: str | None
    usage: Usage
    calls: Sequence[ToolCallBlock] = ()
    fairlead: FairleadAnswer | None = None


class ChatFormat:
    """Writes the answer to one request.

    Args:
        key: names the answer.
    """

    def __init__(self, key: str, wanted: CompletionOptions) -> None:
        self._id = f"chatcmpl-{key}"
        self._wanted = wanted
        self._created = int(time.time())
        self._tail = b',"usage":null}' if wanted.usage else b"}"
        self._before = (
            b'data: {"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"choices":['
            % (_ENCODE(self._id), self._created, _ENCODE(wanted.model))
        )
        self._after = b',"finish_reason":null}]' + self._tail + b"\n\n"

    def whole(
        self, pieces: list[AnswerPiece], ending: ChatEnding, headers: dict[str, str] | None = None
    ) -> Response:
        """The answer in one piece."""
        content = _joined(pieces, "content")
        message = CompletionMessage(
            role="assistant",
            content=None if ending.calls and not content else content,
            reasoning_content=_joined(pieces, "reasoning_content"),
            tool_calls=[
                ToolCalled(
                    id=call.call_id,
                    type="function",
                    function=Called(name=call.name, arguments=arguments_of(call)),
                )
                for call in ending.calls
            ],
        )
        body = ChatCompletion(
            id=self._id,
            object="chat.completion",
            created=self._created,
            model=self._wanted.model,
            choices=[Choice(message=message, finish_reason=ending.finish)],
            usage=_usage(ending.usage),
            fairlead=ending.fairlead,
        )
        return json_response(body, headers=headers)

    def first_chunk(self) -> bytes:
        """The beginning of a stream."""
        return self._delta({"role": "assistant", "content": ""})

    def chunk(self, piece: AnswerPiece) -> bytes:
        """More of the answer."""
        return self._delta({piece.kind: piece.text})

    def last_chunks(self, ending: ChatEnding) -> bytes:
        """The end of a stream."""
        calls = b"".join(self._call(index, call) for index, call in enumerate(ending.calls))
        chunk = b'%s{"index":0,"delta":{},"finish_reason":%s}]' % (self._before, _ENCODE(ending.finish))
        if ending.fairlead is not None:
            chunk += b',"fairlead":%s' % _ENCODE(ending.fairlead)
        chunk += self._tail + b"\n\n"
        if self._wanted.usage:
            chunk += b'%s],"usage":%s}\n\n' % (self._before, _ENCODE(_usage(ending.usage)))
        return calls + chunk + b"data: [DONE]\n\n"

    def _call(self, index: int, call: ToolCallBlock) -> bytes:
        """A call: its name, then its arguments, as OpenAI streams them."""
        named = {"name": call.name, "arguments": ""}
        begun = {"index": index, "id": call.call_id, "type": "function", "function": named}
        rest = {"index": index, "function": {"arguments": arguments_of(call)}}
        return self._delta({"tool_calls": [begun]}) + self._delta({"tool_calls": [rest]})

    def _delta(self, delta: dict[str, object]) -> bytes:
        return self._before + b'{"index":0,"delta":' + _ENCODE(delta) + self._after


def arguments_of(call: ToolCallBlock) -> str:
    """The arguments of a call, as JSON."""
    return call.raw_arguments or _ENCODE(call.arguments or {}).decode()


def error_chunk(problem: Problem) -> bytes:
    """The end of a stream that failed."""
    return b"data: %s\n\ndata: [DONE]\n\n" % _ENCODE(problem.envelope("/v1/"))


def _joined(pieces: list[AnswerPiece], kind: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == kind)


def _usage(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        prompt_tokens_details=PromptTokens(cached_tokens=usage.cache_read_tokens),
    )


class ChatAnswerFormat:
    """Writes what a fold makes of a session as a chat completion.

    Args:
        key: names the answer. session: that it is given in.
    """

    def __init__(self, key: str, wanted: CompletionOptions, answer: ChatAnswer, session: str) -> None:
        self._form = ChatFormat(key, wanted)
        self._session = session
        self._answer = answer

    def begin(self) -> bytes:
        """The beginning of a stream."""
        return self._form.first_chunk()

    def write(self, pieces: list[AnswerPiece]) -> bytes:
        """More of a stream."""
        return b"".join(map(self._form.chunk, pieces))

    def finish(self) -> bytes:
        """The end of a stream."""
        answer = self._answer
        if answer.problem is not None:
            return error_chunk(answer.problem)
        return self._form.last_chunks(self._ending)

    def interrupted(self, problem: Problem) -> bytes:
        """The end of a stream whose answer goes on without it."""
        return error_chunk(problem)

    def whole(self, pieces: list[AnswerPiece], headers: dict[str, str]) -> Response:
        """All of the answer."""
        return self._form.whole(pieces, self._ending, headers)

    @property
    def _ending(self) -> ChatEnding:
        answer = self._answer
        approvals = [AwaitedApproval(id=each.id, tool=each.tool, kind=each.kind) for each in answer.approvals]
        fairlead = FairleadAnswer(session=self._session, outcome=answer.outcome, approvals=approvals)
        return ChatEnding(answer.finish, answer.usage, answer.calls, fairlead)
