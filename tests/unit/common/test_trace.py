"""Trace context is carried on, and never copied from nonsense."""

import pytest

from fairlead_common.protocol.subjects import H_TRACE
from fairlead_common.protocol.trace import child, trace_headers, trace_id

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_child_stays_in_the_trace_with_a_span_of_its_own() -> None:
    made = child(PARENT)
    assert trace_id(made) == trace_id(PARENT) == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert made != PARENT
    assert trace_id(trace_headers(PARENT)[H_TRACE]) == trace_id(PARENT)


@pytest.mark.parametrize(
    "value", [None, "", "x", PARENT.upper(), PARENT + "\r\nNats-TTL: 1", "00-" + "0" * 32 + PARENT[35:]]
)
def test_nonsense_begins_a_new_trace_and_is_not_sent_on(value: str | None) -> None:
    assert len(trace_id(child(value))) == 32
    assert trace_id(value) == ""
    assert trace_headers(value) == {}
