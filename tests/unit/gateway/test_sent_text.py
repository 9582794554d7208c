"""A message that several attempts write is sent once."""

import pytest

from fairlead_gateway.openai_api.sent_text import Sent


def told(attempts: list[list[str]], whole: str) -> str:
    """All that is sent of a message."""
    sent = Sent()
    text = ""
    for number, pieces in enumerate(attempts):
        if number:
            sent.again()
        text += "".join(map(sent.piece, pieces))
    return text + sent.rest(whole)


@pytest.mark.parametrize(
    ("attempts", "whole", "expected"),
    [
        ([["one ", "two"]], "one two three", "one two three"),
        ([["one two"], ["o", "ne", " two three"]], "one two three", "one two three"),
        ([["one two"], ["one"], ["one ", "two ", "three"]], "one two three", "one two three"),
        ([["one two three"], ["one two"]], "one two", "one two three"),
        ([[], []], "one", "one"),
        ([["half a"], ["whole answer"]], "whole answer", "half a\n\nwhole answer"),
        ([["Yes. No"], ["Yes. Maybe"]], "Yes. Maybe so.", "Yes. No\n\nMaybe so."),
        ([["- a\n- b"], ["- a\n- c"]], "- a\n- c\n- d", "- a\n- b\n\n- c\n- d"),
        ([["A. B"], ["A. C"], ["A. B", " D"]], "A. B D", "A. B D"),
        ([["A. Bad"], []], "A. Best.", "A. Bad\n\nBest."),
    ],
)
def test_what_was_sent_is_not_sent_again(attempts: list[list[str]], whole: str, expected: str) -> None:
    assert told(attempts, whole) == expected
