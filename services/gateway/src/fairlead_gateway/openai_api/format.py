"""Chat completions as OpenAI writes them: whole, or as chunks of a stream."""

import time
from typing import Final, NamedTuple

import msgspec
from starlette.responses import Response

from fairlead_common.protocol.content import Usage
from fairlead_gateway.http.problems import Problem, json_response
from fairlead_gateway.openai_api.answer import AnswerPiece
from fairlead_gateway.responses import (
    ChatCompletion,
    Choice,
    CompletionMessage,
    CompletionUsage,
    PromptTokens,
)

_ENCODE: Final = msgspec.json.Encoder().encode


class CompletionOptions(NamedTuple):
    """What the client asked for: an answer as a stream or whole, and the usage at the end of a stream."""

    model: str
    stream: bool
    usage: bool


class ChatFormat:
    """Writes the answer to one request.

    Args:
        key: names the answer.
    """

    def __init__(self, key: str, wanted: CompletionOptions) -> None:
        self._id = f"chatcmpl-{key}"
        self._wanted = wanted
        self._created = int(time.time())
        tail = b',"usage":null}' if wanted.usage else b"}"
        self._before = (
            b'data: {"id":%s,"object":"chat.completion.chunk","created":%d,"model":%s,"choices":['
            % (_ENCODE(self._id), self._created, _ENCODE(wanted.model))
        )
        self._after = b',"finish_reason":null}]' + tail + b"\n\n"

    def whole(
        self,
        pieces: list[AnswerPiece],
        finish: str | None,
        usage: Usage,
        headers: dict[str, str] | None = None,
    ) -> Response:
        """The answer in one piece."""
        message = CompletionMessage(
            role="assistant",
            content=_joined(pieces, "content"),
            reasoning_content=_joined(pieces, "reasoning_content"),
        )
        body = ChatCompletion(
            id=self._id,
            created=self._created,
            model=self._wanted.model,
            choices=[Choice(message=message, finish_reason=finish)],
            usage=_usage(usage),
        )
        return json_response(body, headers=headers)

    def first_chunk(self) -> bytes:
        """The beginning of a stream."""
        return self._delta(b'{"role":"assistant","content":""}')

    def chunk(self, piece: AnswerPiece) -> bytes:
        """More of the answer."""
        return self._delta(b'{"%s":%s}' % (piece.kind.encode(), _ENCODE(piece.text)))

    def last_chunks(self, finish: str | None, usage: Usage) -> bytes:
        """The end of a stream."""
        chunk = b'%s{"index":0,"delta":{},"finish_reason":%s}]%s\n\n' % (
            self._before,
            _ENCODE(finish),
            b',"usage":null}' if self._wanted.usage else b"}",
        )
        if self._wanted.usage:
            chunk += b'%s],"usage":%s}\n\n' % (self._before, _ENCODE(_usage(usage)))
        return chunk + b"data: [DONE]\n\n"

    def _delta(self, delta: bytes) -> bytes:
        return self._before + b'{"index":0,"delta":' + delta + self._after


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
