"""What each kind of chat server is asked, and how the reasoning of its replies goes back to it."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from fairlead_agent.models.chat_dialects import ChatDialect, dialect_of, litellm_dialect, without
from fairlead_agent.models.chat_format import encode_messages
from fairlead_agent.models.chat_reasoning import ReasoningRecord
from fairlead_agent.models.interface import ItemPiece, ModelError, ModelRequest
from fairlead_agent.models.mending import Mending, Mends, mended
from fairlead_agent.models.openai_compatible import body
from fairlead_agent.models.table import ModelFacts, facts_of
from fairlead_agent.models.thinking import budget, effort, most_output
from fairlead_common.protocol.content import Message, ProviderItems, ThinkingBlock, ToolCallBlock
from tests.unit.agent.conversations import call, replied, result, said

LOCAL = "http://127.0.0.1:8000/v1"
Json = dict[str, Any]


async def sent(
    dialect: ChatDialect, *messages: Message, facts: ModelFacts | None = None, **fields: Any
) -> Json:
    given = {"session": "s1", "system": "Be brief.", **fields}
    request = ModelRequest(model="m", messages=messages or [said("hi")], **given)
    encoded = await encode_messages(request, dialect)
    made: Json = json.loads(body(request, "m", encoded, dialect, facts or ModelFacts()))
    return made


def kept(items: Sequence[Json], text: str = "hm") -> ThinkingBlock:
    raw = [msgspec.Raw(json.dumps(each).encode()) for each in items]
    return ThinkingBlock(text=text, provider=ProviderItems(family="x", items=raw))


OPENAI, DEEPSEEK = "https://api.openai.com/v1", "https://api.deepseek.com"
OPENROUTER, KIMI = "https://openrouter.ai/api/v1", "https://api.moonshot.ai/v1"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
ON, OFF = {"thinking": {"type": "enabled"}}, {"thinking": {"type": "disabled"}}
KEEP = {"thinking": {"type": "enabled", "keep": "all"}}


@pytest.mark.parametrize(
    ("url", "vendor", "model", "level", "asked"),
    [
        (OPENAI, "", "gpt-5", "high", {"reasoning_effort": "high"}),
        (OPENAI, "", "gpt-5", "off", {"reasoning_effort": "minimal"}),
        (OPENAI, "", "gpt-5.1", "off", {"reasoning_effort": "none"}),
        (OPENAI, "", "gpt-5.4", "max", {"reasoning_effort": "xhigh"}),
        (OPENAI, "", "gpt-4.1", "high", {}),
        (LOCAL, "", "gpt-5", "off", {"reasoning_effort": "minimal"}),
        (LOCAL, "", "some-model", "off", {}),
        (LOCAL, "", "some-model", "max", {"reasoning_effort": "high"}),
        (LOCAL, "", "qwen3-coder", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
        (DEEPSEEK, "", "deepseek-v4-pro", "off", OFF),
        (DEEPSEEK, "", "deepseek-v4-pro", "low", {**ON, "reasoning_effort": "high"}),
        (LOCAL, "deepseek", "v4", "max", {**ON, "reasoning_effort": "high"}),
        (KIMI, "", "kimi-k2.6", "low", KEEP),
        (KIMI, "", "kimi-k2.6", "off", OFF),
        (KIMI, "", "kimi-k2.7-code", "off", {}),
        (KIMI, "", "kimi-k2-thinking", "high", {}),
        ("https://api.z.ai/api/paas/v4", "", "glm-5", "off", OFF),
        (OPENROUTER, "", "anthropic/claude-sonnet-4.5", "max", {"reasoning": {"effort": "high"}}),
        (OPENROUTER, "", "deepseek/deepseek-v4-pro", "off", {"reasoning": {"enabled": False}}),
        (GEMINI, "", "gemini-2.5-flash", "off", {"reasoning_effort": "none"}),
        (GEMINI, "", "gemini-3-flash-preview", "off", {"reasoning_effort": "minimal"}),
        (GEMINI, "", "gemini-3.1-pro-preview", "max", {"reasoning_effort": "high"}),
        ("https://api.mistral.ai/v1", "", "mistral-large-3", "high", {}),
    ],
)
async def test_each_server_is_told_in_its_own_fields_how_hard_to_think(
    url: str, vendor: str, model: str, level: str, asked: Json
) -> None:
    dialect = dialect_of(model, url, vendor)
    facts = facts_of("openai", model)
    plain = await sent(dialect, facts=ModelFacts(thinking=False))
    made = await sent(dialect, facts=facts, thinking=level)
    assert {name: value for name, value in made.items() if name not in plain} == asked


async def test_limits_temperature_and_the_cache_key_are_sent_where_they_are_taken() -> None:
    options: Json = {"max_output_tokens": 1_000_000, "temperature": 0.5}
    gpt = await sent(dialect_of("gpt-5", OPENAI), facts=facts_of("openai", "gpt-5"), **options)
    assert gpt["max_completion_tokens"] == 128_000
    assert gpt["prompt_cache_key"] == "s1"
    assert not gpt.keys() & {"max_tokens", "temperature"}
    local = await sent(dialect_of("llama", LOCAL), **options)
    assert (local["max_tokens"], local["temperature"]) == (1_000_000, 0.5)
    assert not local.keys() & {"max_completion_tokens", "prompt_cache_key"}
    long = await sent(dialect_of("gpt-5", OPENAI), session="s" * 100)
    assert len(long["prompt_cache_key"]) == 64


REASONING = {"reasoning_content": True}
DETAILS = {"reasoning_details": [{"type": "reasoning.text", "text": "hm", "signature": "S", "index": 0}]}
SIGNATURE = {"extra_content": {"google": {"thought_signature": "G1"}}}


@pytest.mark.parametrize(
    ("url", "model", "items", "back"),
    [
        (DEEPSEEK, "deepseek-v4-pro", REASONING, {"reasoning_content": "hm"}),
        (KIMI, "kimi-k2.6", REASONING, {"reasoning_content": "hm"}),
        (LOCAL, "some-model", {"reasoning": True}, {"reasoning": "hm"}),
        (OPENROUTER, "anthropic/claude-sonnet-4.5", DETAILS, DETAILS),
        (OPENAI, "gpt-5", REASONING, {}),
        ("https://api.mistral.ai/v1", "magistral", REASONING, {}),
    ],
)
async def test_reasoning_goes_back_in_the_field_in_which_it_came(
    url: str, model: str, items: Json, back: Json
) -> None:
    reply = replied(kept([items]), call(0, provider_id="call_123456789"))
    made = await sent(dialect_of(model, url), said("look"), reply, result(0, "x"))
    wire = made["messages"][2]
    assert {name: wire[name] for name in wire if name not in ("role", "content", "tool_calls")} == back


async def test_a_field_of_replies_that_a_server_refused_is_not_sent_again() -> None:
    local, reply = dialect_of("some-model", LOCAL), replied(kept([REASONING]), call(0))
    refused = "Additional properties are not allowed ('reasoning_content' was unexpected) - 'messages.2'"
    asked = ModelRequest(model="some-model", messages=[said("look"), reply, result(0, "x")])
    error = ModelError("fatal", f"HTTP 400 from 127.0.0.1: {refused}")
    mends = Mending().learnt("local/some-model", asked, Mends(), error)
    assert mends is not None
    fields = mended(asked, mends).without
    made = await sent(without(local, fields), *asked.messages)
    assert "reasoning_content" not in made["messages"][2]
    deepseek = await sent(without(dialect_of("deepseek-v4-pro", DEEPSEEK), fields), *asked.messages)
    assert "reasoning_content" not in json.dumps(deepseek)
    assert without(local, {"temperature"}) is local
    gemini = without(dialect_of("gemini-3-flash-preview", GEMINI), {"extra_content"})
    assert "extra_content" not in json.dumps(await sent(gemini, *asked.messages))


async def test_replies_of_other_models_are_filled_where_none_may_lack_reasoning() -> None:
    made = await sent(dialect_of("deepseek-v4-pro", DEEPSEEK), said("a"), replied("b"), said("c"))
    assert made["messages"][2] == {"role": "assistant", "content": "b", "reasoning_content": " "}


async def test_signatures_of_gemini_go_back_with_their_calls_and_unsigned_calls_are_marked() -> None:
    raw = msgspec.Raw(json.dumps(SIGNATURE).encode())
    signed = ToolCallBlock(
        call_id="m_0", name="read", arguments={}, provider=ProviderItems(family="g", items=[raw])
    )
    messages: list[Message] = [said("look"), replied(signed, call(1)), result(0, "x"), result(1, "y")]
    foreign: list[Message] = [replied(call(2), call(3)), result(2, "x"), result(3, "y")]
    made = await sent(dialect_of("gemini-3-flash-preview", GEMINI), *messages, *foreign)
    own, other = (each["tool_calls"] for each in made["messages"] if each["role"] == "assistant")
    assert own[0]["extra_content"] == SIGNATURE["extra_content"]
    assert other[0]["extra_content"]["google"]["thought_signature"] == "skip_thought_signature_validator"
    assert "extra_content" not in own[1]
    assert "extra_content" not in other[1]
    plain = await sent(dialect_of("some-model", OPENAI), *messages)
    assert "extra_content" not in json.dumps(plain)


async def test_ids_of_calls_have_the_form_that_mistral_takes() -> None:
    dialect = dialect_of("mistral-large-3", "https://api.mistral.ai/v1")
    own, other = call(0, provider_id="aB3dE6gH9"), call(1, provider_id="call_with_a_long_id")
    made = await sent(dialect, said("a"), replied(own, other), result(0, "x"), result(1, "y"))
    ids = [each["id"] for each in made["messages"][2]["tool_calls"]]
    assert ids[0] == "aB3dE6gH9"
    assert ids[1].isalnum()
    assert len(ids[1]) == 9
    assert [each["tool_call_id"] for each in made["messages"][3:]] == ids


@pytest.mark.parametrize(
    "dialect",
    [dialect_of("anthropic/claude-opus-4-7", OPENROUTER), litellm_dialect("bedrock/claude-opus-4-7")],
    ids=["openrouter", "litellm"],
)
async def test_claude_is_told_where_to_cache_at_four_places_at_most(dialect: ChatDialect) -> None:
    messages: list[Message] = [said("environment"), said("begin")]
    made: Json = {}
    for number in range(4):
        made = await sent(dialect, *messages)
        marked = [place for place, each in enumerate(made["messages"]) if "cache_control" in json.dumps(each)]
        assert json.dumps(made).count("cache_control") <= 4
        assert marked == [0, 1, *([len(messages) - 2] if number else []), len(messages)]
        messages += [replied(call(number)), result(number, "x")]


def test_details_that_come_in_pieces_are_whole_again() -> None:
    record = ReasoningRecord()
    text = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
    record.words("reasoning")
    record.details([{**text, "text": "h"}])
    record.details([{**text, "text": "m", "signature": None}, {**text, "signature": "S"}])
    assert record.end_of_thought() == []
    record.details([{"type": "reasoning.encrypted", "index": 1, "data": "E", "id": "call_1"}])
    record.details([{"type": "reasoning.encrypted", "index": 1, "data": "F", "id": "call_2"}])
    (item,) = record.end()
    assert isinstance(item, ItemPiece)
    assert json.loads(item.item) == {
        "reasoning_details": [
            {**text, "text": "hm", "signature": "S"},
            {"type": "reasoning.encrypted", "index": 1, "data": "E", "id": "call_1"},
            {"type": "reasoning.encrypted", "index": 1, "data": "F", "id": "call_2"},
        ]
    }


@pytest.mark.parametrize(
    ("efforts", "level", "asked"),
    [
        ({"none", "low", "medium", "high"}, "off", "none"),
        ({"none", "low", "medium", "high"}, "minimal", "low"),
        ({"minimal", "low", "medium", "high"}, "off", "minimal"),
        ({"low", "medium", "high", "xhigh"}, "max", "xhigh"),
        ({"low", "medium", "high", "max"}, "xhigh", "max"),
        ({"low", "medium", "high"}, "off", ""),
        (set(), "off", ""),
        (set(), "max", "high"),
        (set(), "", ""),
    ],
)
def test_the_nearest_effort_is_asked_for(efforts: set[Any], level: str, asked: str) -> None:
    assert effort(level, ModelFacts(efforts=frozenset(efforts))) == asked
    assert effort(level, ModelFacts(efforts=frozenset(efforts), thinking=False)) == ""


def test_a_budget_leaves_half_of_the_reply_to_the_answer() -> None:
    assert [budget(level, 64_000) for level in ("off", "low", "max")] == [None, 4096, 32_000]
    assert [budget("high", most) for most in (2047, 2048, 10_000)] == [None, 1024, 5000]


@pytest.mark.parametrize(
    ("asked", "able", "room", "most"),
    [
        (None, None, None, 99),
        (10, 20, None, 10),
        (30, 20, None, 20),
        (30, 20, 5, 5),
        (None, 20, 30, 20),
        (None, None, 5, 5),
    ],
)
def test_a_reply_is_as_long_as_was_asked_for_and_the_model_can_write(
    asked: int | None, able: int | None, room: int | None, most: int
) -> None:
    request = ModelRequest(model="m", messages=[], max_output_tokens=asked, room_tokens=room)
    assert most_output(request, ModelFacts(output_tokens=able), 99) == most
