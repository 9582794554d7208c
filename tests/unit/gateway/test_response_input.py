"""The input of a response: what is new in it, and what of it a run may wait for."""

from typing import Any

import msgspec
import pytest

from fairlead_gateway.http.problems import Problem
from fairlead_gateway.openai_api.responses_api.input_items import ResponseInput, input_of
from fairlead_gateway.openai_api.responses_api.request import ResponseRequest

USER = {"role": "user", "content": "run it"}
REQUEST = {"type": "item_reference", "id": "mcpr_a1.resp-k1"}
DECISION = {"type": "mcp_approval_response", "approval_request_id": "mcpr_a1.resp-k1", "approve": True}


def read(*items: dict[str, Any]) -> ResponseInput:
    return input_of(msgspec.convert({"model": "main", "input": list(items)}, ResponseRequest))


@pytest.mark.parametrize("before", [[], [{"type": "item_reference", "id": "msg_0.k1"}]])
def test_a_decision_may_come_with_a_reference_to_its_request(before: list[dict[str, Any]]) -> None:
    said = read(USER, *before, REQUEST, DECISION)
    assert [each.place for each in said.decisions] == [("resp-k1", "a1")]
    assert (said.known, said.new, said.outputs) == (None, [], [])


def test_all_decisions_about_one_reply_are_given() -> None:
    other = {"approval_request_id": "mcpr_a2.resp-k1", "approve": False}
    said = read(USER, REQUEST, DECISION, {**REQUEST, "id": "mcpr_a2.resp-k1"}, {**DECISION, **other})
    assert [(each.place.name, each.approve) for each in said.decisions] == [("a1", True), ("a2", False)]


def test_a_decision_after_which_the_agent_has_called_a_tool_is_not_given_again() -> None:
    call = {"type": "item_reference", "id": "fc_1.a1.resp-k1.a"}
    output = {"type": "function_call_output", "call_id": "call_c1..k1", "output": "1"}
    said = read(USER, REQUEST, DECISION, call, output)
    assert (said.decisions, [each.place.name for each in said.outputs]) == ([], ["c1"])


def test_a_decision_that_the_agent_has_answered_is_not_given_again() -> None:
    answered = [{"type": "item_reference", "id": f"{kind}.a1.resp-k1.a"} for kind in ("mcp_0", "msg_1")]
    said = read(USER, REQUEST, DECISION, *answered, {"role": "user", "content": "and now?"})
    assert said.decisions == []
    assert [each.content for each in said.new] == ["and now?"]
    assert str(said.known) == "resp_a1.resp-k1.a"


def test_outputs_behind_words_that_are_referred_to_are_waited_for() -> None:
    calls = [{"type": "item_reference", "id": each} for each in ("msg_0.k1", "fc_1.k1")]
    outputs = [
        {"type": "function_call_output", "call_id": f"call_{each}..k1", "output": "1"}
        for each in ("c1", "c2")
    ]
    said = read(USER, {"type": "item_reference", "id": "fc_0.k0"}, outputs[0], *calls, outputs[1])
    assert [each.place.name for each in said.outputs] == ["c2"]


def test_a_reference_to_what_no_response_has_is_refused() -> None:
    with pytest.raises(Problem, match="'msg_nobody' not found"):
        read({"type": "item_reference", "id": "msg_nobody"}, USER)
