"""What providers are sent, byte for byte: it changes only on purpose, for every change voids their caches."""

import json
from pathlib import Path

import msgspec
import pytest

from fairlead_agent.models.chat_format import convert_to_llm, encode_messages
from fairlead_agent.models.families import family
from fairlead_agent.models.interface import ModelRequest, load_images
from fairlead_agent.models.openai_compatible import body
from fairlead_agent.tools.catalog import Tools
from fairlead_agent.turn.context import CONTINUE, Context, View, transform_context
from fairlead_common.protocol.content import (
    AssistantMessage,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    ToolOutcome,
    ToolResultMessage,
)
from fairlead_common.session_log.conversation import Item
from tests.unit.agent.conversations import CONVERSATIONS, Conversation, fetch

GOLDEN = Path(__file__).parent / "golden"


def request_of(conversation: Conversation, number: int, context: Context) -> ModelRequest:
    """The request with this number; `context` was there for those before it."""
    view = View(
        family(conversation.model), conversation.images, conversation.left_out, first=conversation.first
    )
    context.update(conversation.items(conversation.requests[number]), view)
    again = conversation.asks_again and number == len(conversation.requests) - 1
    return ModelRequest(
        model="m",
        messages=[*context.messages, CONTINUE] if again else context.messages,
        system=conversation.system,
        tools=Tools(conversation.tools, ["full"]).schemas,
        thinking=conversation.thinking,
        temperature=conversation.temperature,
        max_output_tokens=conversation.max_output_tokens,
        fetch=fetch,
        kept=context.kept,
    )


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_requests_of_a_conversation_are_as_they_were(name: str) -> None:
    conversation = CONVERSATIONS[name]
    expected = (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()
    context = Context()
    for number in range(len(conversation.requests)):
        request = request_of(conversation, number, context)
        assert body(request, "m", await encode_messages(request)) == expected[number]
        anew = request_of(conversation, number, Context())  # as another worker would send it
        assert body(anew, "m", await encode_messages(anew)) == expected[number]


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_litellm_is_given_the_same_messages(name: str) -> None:
    conversation = CONVERSATIONS[name]
    request = request_of(conversation, len(conversation.requests) - 1, Context())
    images = await load_images(request.messages, fetch)
    made = [wire for wires in convert_to_llm(request.messages, images) for wire in wires]
    expected = json.loads((GOLDEN / f"{name}.jsonl").read_bytes().splitlines()[-1])
    assert [{"role": "system", "content": request.system}, *made] == expected["messages"]


async def test_nothing_is_encoded_twice_and_what_was_asked_again_is_forgotten() -> None:
    conversation = CONVERSATIONS["asked_again"]
    context = Context()
    await encode_messages(request_of(conversation, 0, context))
    later = Conversation([*conversation.messages, *CONVERSATIONS["text"].messages], [7])
    asked: list[str] = []

    async def counted(name: str) -> bytes:
        asked.append(name)
        return await fetch(name)

    request = request_of(later, 0, context)
    assert b"Your last reply was empty" not in await encode_messages(request)
    pictures = CONVERSATIONS["images"]
    context = Context()
    for number in range(3):
        made = request_of(pictures, number, context)
        await encode_messages(
            ModelRequest(model="m", messages=made.messages, fetch=counted, kept=context.kept)
        )
    assert asked == ["here", "gone", "there", "here"]


async def test_another_family_of_models_is_sent_no_ids_and_thoughts_of_the_one_before() -> None:
    claude = CONVERSATIONS["parallel_calls_of_claude"]
    other = CONVERSATIONS["parallel_calls_for_another_family"]
    context = Context()
    for conversation, number, name in (
        (claude, 1, "parallel_calls_of_claude"),
        (other, 0, "parallel_calls_for_another_family"),
        (claude, 2, "parallel_calls_of_claude"),
    ):
        expected = msgspec.json.decode((GOLDEN / f"{name}.jsonl").read_bytes().splitlines()[number])
        request = request_of(conversation, number, context)
        made = msgspec.json.decode(b"[" + await encode_messages(request) + b"]")
        assert made == expected["messages"]


def test_a_reply_without_words_is_an_empty_text_and_beside_calls_none() -> None:
    said = AssistantMessage(content=[TextBlock(text="")], model="")
    called = AssistantMessage(content=[ToolCallBlock(call_id="c", name="ls", arguments={})], model="m")
    ((empty,), (calls,)) = convert_to_llm([said, called], {})
    assert empty == {"role": "assistant", "content": ""}
    assert calls["content"] is None


def test_the_status_of_a_result_that_begins_with_an_image_is_a_paragraph_of_its_own() -> None:
    image = ImageBlock(object="o", media_type="image/png")
    outcome = ToolOutcome(status="cancelled", content=[image], is_error=True)
    shown = transform_context(
        [Item("t", ToolResultMessage(call_id="c", name="look", outcome=outcome))], View()
    )
    ((result, _),) = convert_to_llm(shown, {"o": b"png"})
    assert result["content"] == "[cancelled]\n\n[image: it follows]"
