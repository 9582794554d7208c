"""The answer to one prompt out of a log that holds other things too."""

from fairlead_common.protocol.content import AssistantMessage, TextBlock, ToolCallBlock, UserMessage
from fairlead_common.protocol.entries import MessageEntry, RunEndEntry
from fairlead_common.protocol.events import Delta, MessageUpdate
from fairlead_gateway.openai_api.answer import AnswerPiece, ChatAnswer

PROMPT = 10


def words(message: str, n: int, text: str, log_seq: int = 0) -> MessageUpdate:
    delta = Delta(type="text_delta", index=0, text=text)
    return MessageUpdate(message_id=message, n=n, delta=delta, log_seq=log_seq)


def user(*seqs: int) -> MessageEntry:
    return MessageEntry(id=f"u{seqs}", run_id="r", message=UserMessage(content=[], seqs=list(seqs)))


def reply(name: str, text: str, *, calls: bool = False, stop: str | None = None) -> MessageEntry:
    call = [ToolCallBlock(call_id=f"{name}_1", name="x")] if calls else []
    message = AssistantMessage(
        content=[TextBlock(text=text), *call],
        model="m",
        stop_reason=stop or ("tool_use" if calls else "stop"),  # type: ignore[arg-type]
    )
    return MessageEntry(id=name, run_id="r", message=message)


def begun() -> ChatAnswer:
    answer = ChatAnswer(PROMPT)
    assert list(answer.entry(12, user(PROMPT))) == []
    return answer


def text(pieces: list[AnswerPiece]) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == "content")


def test_late_words_of_an_earlier_answer_are_not_ours() -> None:
    answer = begun()
    assert list(answer.live(words("old", 0, "old", log_seq=11))) == []
    assert (
        text([*answer.live(words("new", 0, "new", log_seq=12)), *answer.entry(13, reply("new", "new!"))])
        == "new!"
    )


def test_nothing_counts_before_the_prompt_is_part_of_the_conversation() -> None:
    answer = ChatAnswer(PROMPT)
    assert list(answer.live(words("m", 0, "x", log_seq=11))) == []
    assert list(answer.entry(11, reply("m", "x"))) == []
    assert list(answer.entry(12, RunEndEntry(id="e", outcome="completed", seqs=[3]))) == []
    assert not answer.done


def test_words_that_were_not_heard_come_from_the_log() -> None:
    answer = begun()
    pieces = [
        *answer.live(words("m", 0, "a")),
        *answer.live(words("m", 2, "c")),
        *answer.live(words("m", 3, "d")),
    ]
    assert text(pieces) == "a"
    assert text(list(answer.entry(13, reply("m", "abcd")))) == "bcd"
    assert answer.finish == "stop"
    late = begun()
    assert list(late.live(words("m", 5, "f"))) == []
    assert text(list(late.entry(13, reply("m", "abcdef")))) == "abcdef"


def test_text_that_became_another_is_said_anew() -> None:
    answer = begun()
    assert text(list(answer.live(words("m", 0, "wrong")))) == "wrong"
    assert text(list(answer.entry(13, reply("m", "right")))) == "\n\nright"


def test_answer_ends_with_the_first_reply_without_calls() -> None:
    answer = begun()
    list(answer.entry(13, reply("m1", "one", calls=True)))
    assert not answer.done
    list(answer.entry(14, reply("m2", "two")))
    assert answer.finish == "stop"
    assert list(answer.entry(15, reply("m3", "three"))) == []


def test_answer_that_is_cut_off_goes_on_once_without_a_break() -> None:
    answer = begun()
    said = text(list(answer.entry(13, reply("m1", "The first ha", stop="length"))))
    assert not answer.done
    said += text(list(answer.live(words("m2", 0, "lf "))))
    said += text(list(answer.entry(14, reply("m2", "lf of it", stop="length"))))
    assert (said, answer.finish) == ("The first half of it", "length")


def test_a_run_that_waits_for_its_provider_is_an_error_that_says_when() -> None:
    answer = begun()
    waiting = RunEndEntry(id="e", ts=1_000, outcome="waiting_provider", error="away", retry_at=16_000)
    assert list(answer.entry(13, waiting)) == []
    assert answer.problem is not None
    assert (answer.problem.status, answer.problem.code) == (503, "waiting_provider")
    assert "away. It is asked again in 15 s; the prompt is kept" in answer.problem.message
    assert answer.problem.headers == {"Retry-After": "15", "x-should-retry": "false"}


def test_reply_that_was_cut_waits_for_the_end_of_the_run() -> None:
    answer = begun()
    list(answer.entry(13, reply("m1", "half", stop="aborted")))
    assert not answer.done
    list(answer.entry(14, RunEndEntry(id="e", outcome="aborted", error="stopped")))
    assert answer.problem is not None
    assert answer.problem.status == 409
    assert "stopped" in answer.problem.message


def test_run_that_ended_without_taking_the_prompt_up_is_the_end_too() -> None:
    answer = ChatAnswer(PROMPT)
    list(answer.entry(11, RunEndEntry(id="e", outcome="aborted", seqs=[PROMPT])))
    assert answer.problem is not None


def test_words_heard_after_the_log_had_them_whole_are_not_said_again() -> None:
    answer = begun()
    assert text(list(answer.entry(13, reply("m", "I look", calls=True)))) == "I look"
    assert list(answer.live(words("m", 0, "I "))) == []
    assert text(list(answer.entry(14, reply("n", "done")))).strip() == "done"


def thought(message: str, n: int, text: str) -> MessageUpdate:
    return MessageUpdate(message_id=message, n=n, delta=Delta(type="thinking_delta", index=0, text=text))


def test_second_attempt_says_only_what_the_first_one_did_not() -> None:
    answer = begun()
    first = [*answer.live(thought("a", 0, "hm")), *answer.live(words("a", 1, "One two"))]
    again = [
        *answer.live(thought("b", 0, "hm ")),
        *answer.live(thought("b", 1, "well")),
        *answer.live(words("b", 2, "One ")),
        *answer.live(words("b", 3, "two three")),
    ]
    assert text(first + again) == "One two three"
    thoughts = "".join(piece.text for piece in first + again if piece.kind == "reasoning_content")
    assert thoughts == "hm well"
    assert list(answer.entry(13, reply("b", "One two three"))) == []


def test_words_heard_before_the_prompt_is_taken_up_are_said_as_soon_as_it_is() -> None:
    answer = ChatAnswer(PROMPT)
    assert list(answer.live(words("m", 0, "first", log_seq=12))) == []
    assert text(list(answer.entry(12, user(PROMPT)))) == "first"
    assert text(list(answer.live(words("m", 1, " last", log_seq=12)))) == " last"


def test_words_heard_before_the_log_entry_that_they_follow_wait_for_it() -> None:
    answer = begun()
    assert list(answer.live(words("n", 0, "two", log_seq=13))) == []
    assert text(list(answer.entry(13, reply("m", "one", calls=True)))) == "one\n\ntwo"
    assert text(list(answer.entry(14, reply("n", "two!")))) == "!"
