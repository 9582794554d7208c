"""Conversations with items and metadata: all methods of OpenAI's own client, and a scripted agent."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from fairlead_common.bus import Bus
from tests.integration.gateway_fixture import TOKEN, RunningGateway
from tests.integration.test_gateway_responses import say


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=TOKEN, timeout=20) as client:
        yield client


async def said_in(client: openai.AsyncOpenAI, conversation: str, **more: Any) -> list[tuple[str, str]]:
    """Role and words of each message, the oldest first."""
    items = [each async for each in client.conversations.items.list(conversation, order="asc", **more)]
    return [(each.role, each.content[0].text) for each in items if each.type == "message"]  # type: ignore[union-attr]


def user(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


async def test_items_come_with_the_next_response_and_all_that_was_said_is_listed(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    begun: Any = [user("I am Ann"), {"role": "assistant", "content": "Hello"}, user("I live in Bonn")]
    made = await client.conversations.create(items=begun, metadata={"topic": "weather"})
    assert made.metadata == {"topic": "weather"}
    before = [("user", "I am Ann"), ("assistant", "Hello"), ("user", "I live in Bonn")]
    assert await said_in(client, made.id) == before

    playing = asyncio.create_task(say(bus, 0, "It is warm"))
    key = {"Idempotency-Key": "k"}
    first = await client.responses.create(
        model="main", input="How warm?", conversation=made.id, extra_headers=key
    )
    _, prompt = await playing
    again = await client.responses.create(
        model="main", input="How warm?", conversation=made.id, extra_headers=key
    )
    assert again.id == first.id
    assert prompt["text"] == "I live in Bonn\n\nHow warm?"
    before += [("user", "How warm?"), ("assistant", "It is warm")]
    assert await said_in(client, made.id) == before
    assert await said_in(client, made.id, limit=2) == before

    added = await client.conversations.items.create(made.id, items=[user("I am cold"), user("A lot")])
    assert [each.type for each in added.data] == ["message", "message"]
    one = await client.conversations.items.retrieve(added.data[0].id, conversation_id=made.id)  # type: ignore[arg-type]
    assert one == added.data[0]
    assert (
        await client.conversations.items.delete(added.data[1].id, conversation_id=made.id)  # type: ignore[arg-type]
    ).id == made.id
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.retrieve(added.data[1].id, conversation_id=made.id)  # type: ignore[arg-type]
    with pytest.raises(openai.BadRequestError, match="begun"):
        words: Any = {"role": "assistant", "content": "x"}
        await client.conversations.items.create(made.id, items=[words])

    playing = asyncio.create_task(say(bus, 1, "Take a coat"))
    await client.responses.create(model="main", input="And now?", conversation=made.id)
    _, prompt = await playing
    assert prompt["text"] == "I am cold\n\nAnd now?"
    assert await said_in(client, made.id) == [
        *before, ("user", "I am cold"), ("user", "And now?"), ("assistant", "Take a coat"),
    ]  # fmt: skip

    answered = first.output[-1].id
    assert answered is not None
    await client.conversations.items.delete(answered, conversation_id=made.id)
    assert ("assistant", "It is warm") not in await said_in(client, made.id)


async def test_metadata_is_replaced_and_its_limits_are_named(client: openai.AsyncOpenAI) -> None:
    made = await client.conversations.create(metadata={"a": "1"})
    changed = await client.conversations.update(made.id, metadata={"b": "x" * 512})
    assert changed.metadata == {"b": "x" * 512}
    assert (await client.conversations.retrieve(made.id)).metadata == {"b": "x" * 512}
    for metadata in ({"b": "x" * 513}, {"k" * 65: "x"}, {str(n): "x" for n in range(17)}):
        with pytest.raises(openai.BadRequestError):
            await client.conversations.update(made.id, metadata=metadata)
    assert (await client.conversations.delete(made.id)).deleted
    for call in (client.conversations.retrieve(made.id), client.conversations.delete(made.id)):
        with pytest.raises(openai.NotFoundError):
            await call


async def test_what_cannot_be_an_item_is_refused(client: openai.AsyncOpenAI) -> None:
    made = await client.conversations.create(metadata={"a": "1"})
    wrong: list[Any] = [
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "message", "role": "robot", "content": "x"},
        user(" "),
    ]
    for item in wrong:
        with pytest.raises(openai.BadRequestError, match=r"items\[0\]"):
            await client.conversations.items.create(made.id, items=[item])
    picture: Any = {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "https://example.com/a"}],
    }
    with pytest.raises(openai.BadRequestError, match="image_url"):
        await client.conversations.items.create(made.id, items=[picture])
    with pytest.raises(openai.BadRequestError):
        await client.conversations.items.create(made.id, items=[user("x")] * 21)
    with pytest.raises(openai.BadRequestError, match="after"):
        await client.conversations.items.list(made.id, after="nothing")
    with pytest.raises(openai.NotFoundError):
        await client.conversations.items.list("conv_nothing")
