"""What the model is shown."""

import json

import pytest

from fairlead_agent import context
from fairlead_agent.catalog import Tools
from fairlead_agent.state import Item, Wire
from fairlead_common.config import AgentConfig
from fairlead_common.content import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    UserMessage,
    text_outcome,
)
from fairlead_common.errors import NotFoundError
from fairlead_common.messages import ToolSpec


async def fetch(name: str) -> bytes:
    if name == "gone":
        raise NotFoundError("object gone does not exist")
    return b"png"


async def shown(*messages: Message) -> list[dict[str, object]]:
    items = [Item(f"e{number}", message) for number, message in enumerate(messages)]
    wire = Wire()
    await context.encode_new(items, wire, fetch)
    made: list[dict[str, object]] = json.loads(b"[" + wire.joined + b"]")
    return made


async def test_calls_and_results_are_paired_by_the_providers_id() -> None:
    call = ToolCallBlock(call_id="e1_0", name="bash", arguments={"command": "ls"}, provider_id="call_7")
    wires = await shown(
        UserMessage(content=[TextBlock(text="hi")]),
        AssistantMessage(content=[ThinkingBlock(text="hm"), TextBlock(text="ok"), call], model="m"),
        ToolResultMessage(
            call_id="e1_0",
            name="bash",
            provider_id="call_7",
            outcome=text_outcome("unknown", "lost", is_error=True),
        ),
    )
    assert wires[0] == {"role": "user", "content": "hi"}
    assert wires[1]["content"] == "ok"
    assert wires[1]["tool_calls"] == [
        {"id": "call_7", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    ]
    assert wires[2] == {"role": "tool", "tool_call_id": "call_7", "content": "[unknown] lost"}


async def test_thoughts_go_back_only_with_their_signature() -> None:
    signed = ThinkingBlock(text="hm", signature="sig")
    wires = await shown(AssistantMessage(content=[signed, TextBlock(text="ok")], model="m"))
    assert wires[0]["thinking_blocks"] == [{"type": "thinking", "thinking": "hm", "signature": "sig"}]


async def test_message_that_was_cut_off_before_it_said_anything_is_left_out() -> None:
    assert await shown(AssistantMessage(content=[], model="m", stop_reason="aborted")) == []


async def test_image_is_sent_inline_and_a_lost_one_as_words() -> None:
    image = ImageBlock(object="here", media_type="image/png")
    lost = ImageBlock(object="gone", media_type="image/png", name="a.png")
    (wire,) = await shown(UserMessage(content=[TextBlock(text="look"), image, lost]))
    content = wire["content"]
    assert isinstance(content, list)
    assert content[1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}
    assert "a.png is gone" in content[2]["text"]


async def test_only_new_messages_are_encoded() -> None:
    items = [Item("a", UserMessage(content=[TextBlock(text="hi")]))]
    wire = Wire()
    await context.encode_new(items, wire, fetch)
    assert (wire.count, wire.joined) == (1, b'{"role":"user","content":"hi"}')
    wire.joined = b"kept"
    items.append(Item("b", AssistantMessage(content=[], model="m", stop_reason="aborted")))
    items.append(Item("c", UserMessage(content=[TextBlock(text="ho")])))
    await context.encode_new(items, wire, fetch)
    assert (wire.count, wire.joined) == (3, b'kept,{"role":"user","content":"ho"}')


async def test_picture_counts_as_a_picture_and_not_as_its_bytes() -> None:
    async def fetch_large(_: str) -> bytes:
        return b"x" * 3_000_000

    wire = Wire()
    image = ImageBlock(object="here", media_type="image/png")
    await context.encode_new([Item("a", UserMessage(content=[image]))], wire, fetch_large)
    assert wire.tokens == context.TOKENS_PER_IMAGE
    assert context.estimate_tokens(wire, b"x" * 400) == context.TOKENS_PER_IMAGE + 100


def test_system_prompt_names_tools_and_carries_the_workspaces_instructions() -> None:
    tools = Tools([ToolSpec(name="bash", description="", parameters={})], [])
    wire = context.system_prompt(
        "main", AgentConfig(system_prompt="Be brief."), "/home/me/project", tools, "Use tabs."
    )
    text = json.loads(wire)["content"]
    assert all(words in text for words in ("Tools: bash.", "Workspace: project", "Be brief.", "Use tabs."))
    assert "/home/me" not in text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "arguments: 'command' is a required property"),
        ({"command": 5}, "command: 5 is not of type 'string'"),
        ({"command": "ls"}, None),
    ],
)
def test_arguments_are_checked_with_words_that_name_the_place(
    arguments: dict[str, object], problem: str | None
) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    }
    tools = Tools([ToolSpec(name="bash", description="", parameters=schema)], [])
    assert tools.problem("bash", arguments) == problem


def test_profile_narrows_the_tools() -> None:
    specs = [ToolSpec(name=name, description="", parameters={}) for name in ("bash", "read")]
    assert list(Tools(specs, ["read"]).specs) == ["read"]


def test_what_rules_read_of_a_tool_is_not_shown_to_models() -> None:
    parameters: dict[str, object] = {"type": "object", "x-fairlead-api": {"method": "GET", "path": "/pets"}}
    tools = Tools([ToolSpec(name="api__pets__list", description="", parameters=parameters)], [])
    assert json.loads(tools.wire)[0]["function"]["parameters"] == {"type": "object"}
    assert tools.specs["api__pets__list"].parameters == parameters
