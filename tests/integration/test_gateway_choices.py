"""Several answers to one request, and the old form of tools: OpenAI's own client and a scripted agent."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects
from fairlead_common.protocol.content import Usage
from fairlead_common.protocol.ids import new_id
from tests.integration.gateway_fixture import TOKEN, FakeAgent, RunningGateway
from tests.integration.test_gateway_client_tools import agent_of, call_weather, go_on, prompts, results
from tests.support.waiting import until

ASKED: Any = {"role": "user", "content": "Name a city"}
FUNCTIONS: list[Any] = [
    {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
]


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=TOKEN, timeout=20, max_retries=0
    ) as client:
        yield client


async def create(client: openai.AsyncOpenAI, *messages: Any, **more: Any) -> Any:
    return await client.chat.completions.create(model="main", messages=list(messages), **more)


async def agents_of(bus: Bus, count: int, after: int = 0) -> list[FakeAgent]:
    return [await agent_of(bus, number) for number in range(after, after + count)]


async def session_of(bus: Bus, number: int) -> str:
    """Of prompt `number`."""
    async with asyncio.timeout(20):
        while len(found := await prompts(bus)) <= number:
            await asyncio.sleep(0.01)
    return subjects.parse_session(found[number].subject).session


async def finish(agent: FakeAgent, text: str, *pieces: str) -> None:
    if pieces:
        await agent.stream("m", list(pieces))
    await agent.reply(new_id(), text, usage=Usage(input_tokens=10, output_tokens=3))
    await agent.end(usage=Usage(input_tokens=10, output_tokens=3))


async def test_choices_are_sessions_that_begin_at_one_place_and_each_can_be_continued(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    asking = asyncio.create_task(create(client, ASKED))
    first = await agent_of(bus)
    await finish(first, "Bonn")
    told = (await asking).choices[0].message.model_dump(exclude_none=True)

    another: Any = {"role": "user", "content": "Another"}
    asking = asyncio.create_task(create(client, ASKED, told, another, n=3))
    agents = await agents_of(bus, 3, after=1)
    for agent, city in zip(agents, ("Ulm", "Kiel", "Trier"), strict=True):
        await finish(agent, city)
    answer = await asking
    assert [(each.index, each.message.content) for each in answer.choices] == [
        (0, "Ulm"), (1, "Kiel"), (2, "Trier"),
    ]  # fmt: skip
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (30, 9)
    assert [each.fairlead["session"] for each in answer.choices] == [agent.session for agent in agents]
    assert len({first.session, *(agent.session for agent in agents)}) == 4

    chosen = answer.choices[1].message.model_dump(exclude_none=True)
    thanks: Any = {"role": "user", "content": "Thanks"}
    asking = asyncio.create_task(create(client, ASKED, told, another, chosen, thanks))
    assert await session_of(bus, 4) == agents[1].session
    await agents[1].begin([(await prompts(bus))[4].seq])
    await finish(agents[1], "Welcome")
    assert (await asking).choices[0].message.content == "Welcome"

    asking = asyncio.create_task(create(client, ASKED, told, {"role": "user", "content": "And"}))
    assert await session_of(bus, 5) == first.session  # the choices left its end free
    asking.cancel()
    await until(asking.done, "the client has left")


async def test_streamed_choices_interleave_by_their_index(client: openai.AsyncOpenAI, bus: Bus) -> None:
    stream = await create(client, ASKED, n=2, stream=True, stream_options={"include_usage": True})
    one, other = await agents_of(bus, 2)
    await other.stream("m", ["Ki"])
    await one.stream("m", ["Ul"])
    heard: list[tuple[int, str]] = []
    finished: list[tuple[int, str]] = []
    usage = None
    ended = False
    async for chunk in stream:
        usage = chunk.usage or usage
        for each in chunk.choices:
            heard += [(each.index, each.delta.content)] if each.delta.content else []
            finished += [(each.index, each.finish_reason)] if each.finish_reason else []
        if len(heard) == 2 and not ended:
            ended = True
            await finish(one, "Ulm")
            await finish(other, "Kiel")
    assert sorted(heard[:2]) == [(0, "Ul"), (1, "Ki")]
    assert ["".join(text for at, text in heard if at == index) for index in (0, 1)] == ["Ulm", "Kiel"]
    assert finished == [(0, "stop"), (1, "stop")]
    assert usage is not None
    assert usage.total_tokens == 26


async def test_choices_of_one_key_are_the_same_ones_and_another_number_is_refused(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    key = {"Idempotency-Key": "cities"}
    asking = [asyncio.create_task(create(client, ASKED, n=2, extra_headers=key)) for _ in range(2)]
    for agent, city in zip(await agents_of(bus, 2), ("Ulm", "Kiel"), strict=True):
        await finish(agent, city)
    for each in asking:
        assert [choice.message.content for choice in (await each).choices] == ["Ulm", "Kiel"]
    assert len(await prompts(bus)) == 2
    with pytest.raises(openai.ConflictError, match="n = 2, got 3"):
        await create(client, ASKED, n=3, extra_headers=key)
    with pytest.raises(openai.BadRequestError, match="a session that the request names"):
        await create(client, ASKED, n=2, extra_headers={"X-Fairlead-Session": "mine"})


async def test_a_client_that_leaves_stops_all_choices_and_one_failure_is_that_of_the_request(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    asking = asyncio.create_task(create(client, ASKED, n=2))
    one, other = await agents_of(bus, 2)
    asking.cancel()
    async with asyncio.timeout(30):
        while {subjects.parse_session(each.subject).session for each in await prompts(bus, "abort")} != {
            one.session, other.session,
        }:  # fmt: skip
            await asyncio.sleep(0.02)

    asking = asyncio.create_task(create(client, ASKED, n=2))
    one, other = await agents_of(bus, 2, after=2)
    await finish(one, "Ulm")
    await other.end("failed")
    with pytest.raises(openai.APIStatusError) as failed:
        await asking
    assert failed.value.status_code == 502


async def test_old_functions_are_called_one_at_a_time_in_their_old_form(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    asking = asyncio.create_task(
        create(client, ASKED, functions=FUNCTIONS, function_call={"name": "weather"})
    )
    agent = await agent_of(bus)
    (prompt,) = await prompts(bus)
    asked = json.loads(prompt.data)
    assert (asked["client_tools"][0]["name"], asked["tool_choice"]) == ("weather", "weather")
    calls = await call_weather(agent, "Bonn", "Ulm", text="")
    choice = (await asking).choices[0]
    assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == (
        "function_call", None, None,
    )  # fmt: skip
    assert choice.message.function_call.name == "weather"
    assert json.loads(choice.message.function_call.arguments) == {"city": "Bonn"}

    message = choice.message.model_dump(exclude_none=True)
    message["function_call"]["arguments"] = '{"city":   "Bonn"}'  # as some clients write it again
    result: Any = {"role": "function", "name": "weather", "content": "21 C"}
    stream = await create(client, ASKED, message, result, functions=FUNCTIONS, stream=True)
    found = await results(bus, 2)
    assert (found[0]["call_id"], found[0]["text"]) == (calls[0].call_id, "21 C")
    assert found[1]["call_id"] == calls[1].call_id
    assert found[1]["is_error"]
    await go_on(agent, calls, "Warm.")
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "Warm."
    assert len(await prompts(bus)) == 1


async def test_streamed_call_of_an_old_function(client: openai.AsyncOpenAI, bus: Bus) -> None:
    stream = await create(client, ASKED, functions=FUNCTIONS, stream=True)
    await call_weather(await agent_of(bus), "Bonn", text="")
    chunks = [chunk.choices[0] async for chunk in stream]
    called = [each.delta.function_call for each in chunks if each.delta.function_call]
    assert called[0].name == "weather"
    assert json.loads("".join(each.arguments or "" for each in called)) == {"city": "Bonn"}
    assert chunks[-1].finish_reason == "function_call"
