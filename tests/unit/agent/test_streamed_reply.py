"""What a reply becomes: whose pieces are whose, and what of it counts."""

from typing import Any

import pytest

from fairlead_agent.models.interface import Finish, Piece, TextPiece, ThinkingPiece, ToolCallPiece
from fairlead_agent.turn.streamed_reply import StreamedReply
from fairlead_common.protocol.content import AssistantMessage, ThinkingBlock


def made(*pieces: Piece) -> AssistantMessage:
    reply = StreamedReply("m1", "host")
    for piece in pieces:
        reply.add(piece)
    return reply.message("m")


def calls(*pieces: ToolCallPiece) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in made(*pieces, Finish("tool_use")).tool_calls]


P = ToolCallPiece
X, Y = '{"path":"x"}', '{"path":"y"}'


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([P(0, X, "a", "read"), P(0, Y, "b", "read")], id="one index for all, as Ollama does"),
        pytest.param([P(None, X, "a", "read"), P(None, Y, "b", "read")], id="no index"),
        pytest.param(
            [P(None, X, "", "read"), P(None, Y, "", "read")], id="no index and no id, as for Gemini"
        ),
        pytest.param([P(0, X, None, "read"), P(0, Y, None, "read")], id="one index and no id"),
        pytest.param([P(0, X, "same", "read"), P(0, Y, "same", "read")], id="one index and one id"),
        pytest.param(
            [P(0, "", "a", "read"), P(0, X[:5]), P(0, X[5:]), P(0, "", "b", "read"), P(0, Y)],
            id="one index, arguments in pieces",
        ),
        pytest.param(
            [P(0, X[:5], "a", "read"), P(1, Y[:5], "b", "read"), P(0, X[5:]), P(1, Y[5:])],
            id="interleaved by index",
        ),
        pytest.param(
            [P(0, X[:5], "a", "read"), P(0, X[5:], "a", "read"), P(1, Y, "b", "read")],
            id="id and name with every piece",
        ),
        pytest.param(
            [P(0, "", "a1", "read"), P(0, X[:5], "a2"), P(0, X[5:], "a3"), P(1, Y, "b", "read")],
            id="a fresh id with every piece",
        ),
        pytest.param(
            [P(0, "", "a", "read"), P(0, X, "a", "read"), P(0, "", "a", "read"), P(1, Y, "b", "read")],
            id="name with empty pieces around the arguments",
        ),
    ],
)
def test_parallel_calls_stay_apart_however_they_are_numbered(pieces: list[ToolCallPiece]) -> None:
    assert calls(*pieces) == [("read", {"path": "x"}), ("read", {"path": "y"})]


def test_calls_without_arguments_stay_apart_too() -> None:
    assert calls(P(0, "", "a", "ls"), P(0, "", "b", "ls"), P(None, "", None, "pwd")) == [
        ("ls", {}),
        ("ls", {}),
        ("pwd", {}),
    ]


def test_an_id_that_two_calls_share_is_not_sent_back_for_both() -> None:
    message = made(P(0, X, "same", "read"), P(1, Y, "same", "read"), Finish("tool_use"))
    assert [call.provider_id for call in message.tool_calls] == ["same", None]


def test_a_call_that_the_output_limit_cut_has_no_arguments_that_could_run() -> None:
    for cut in ("", '{"command": "rm -rf /tmp/x', '{"command": "rm"'):
        message = made(P(0, X, "a", "read"), P(1, cut, "b", "bash"), Finish("length"))
        assert message.stop_reason == "length"
        assert [call.arguments for call in message.tool_calls] == [{"path": "x"}, None]
        assert message.tool_calls[1].raw_arguments == cut


@pytest.mark.parametrize("failure", ["content_filter", "refusal", "reply_paused"])
def test_reply_that_was_stopped_keeps_its_words_and_none_of_its_calls(failure: Any) -> None:
    message = made(TextPiece("I can"), P(0, X, "a", "read"), Finish("tool_use", failure=failure))
    assert (message.text, message.tool_calls) == ("I can", [])
    assert (message.stop_reason, message.error_code) == ("error", failure)
    assert message.error


def test_thoughts_are_kept_as_they_came_each_with_its_signature() -> None:
    message = made(
        ThinkingPiece("one "),
        ThinkingPiece("more"),
        ThinkingPiece("", "S1"),
        ThinkingPiece("", redacted="R"),
        ThinkingPiece("two"),
        ThinkingPiece("", "S2"),
        ThinkingPiece("three", "S3"),
        P(0, X, "a", "read"),
    )
    thoughts = [block for block in message.content if isinstance(block, ThinkingBlock)]
    assert [(each.text, each.signature, each.redacted) for each in thoughts] == [
        ("one more", "S1", None),
        ("", None, "R"),
        ("two", "S2", None),
        ("three", "S3", None),
    ]
