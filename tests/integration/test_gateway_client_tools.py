"""Tools of the client, asked for with OpenAI's own client and called by a scripted agent."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects
from fairlead_common.protocol.content import ToolCallBlock, ToolResultMessage, Usage, text_outcome
from fairlead_common.protocol.entries import MessageEntry, RunStartEntry
from fairlead_common.protocol.ids import new_id
from tests.integration.gateway_fixture import TOKEN, FakeAgent, RunningGateway
from tests.support.checked_streams import checked_client
from tests.support.waiting import until

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
ASKED: Any = {"role": "user", "content": "How warm is it?"}


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    async with checked_client(gateway.url, TOKEN, timeout=20) as client:
        yield client


async def prompts(bus: Bus, kind: str = "prompt") -> list[Any]:
    found = bus.read(subjects.SESSIONS, f"fairlead.session.*.in.{kind}.>")
    return [record async for record in found]


async def agent_of(bus: Bus, number: int = 0) -> FakeAgent:
    """The agent of the session with prompt `number`, which it takes up."""
    async with asyncio.timeout(20):
        while len(found := await prompts(bus)) <= number:
            await asyncio.sleep(0.01)
    agent = FakeAgent(bus, subjects.parse_session(found[number].subject).session)
    await agent.begin([found[number].seq])
    return agent


async def call_weather(agent: FakeAgent, *cities: str, text: str = "I ask.") -> list[ToolCallBlock]:
    """A reply that calls the client's tool, and the end of its run."""
    entry = new_id()
    calls = [
        ToolCallBlock(call_id=f"{entry}_{n}", name="weather", arguments={"city": city}, host="client")
        for n, city in enumerate(cities, 1)
    ]
    await agent.reply(entry, text, *calls, usage=Usage(input_tokens=100, output_tokens=10))
    await agent.end("requires_action")
    return calls


async def results(bus: Bus, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(20):
        while len(found := await prompts(bus, "clientresult")) < count:
            await asyncio.sleep(0.01)
    return [json.loads(record.data) for record in found]


async def go_on(agent: FakeAgent, calls: list[ToolCallBlock], text: str) -> None:
    """The results as messages, the run that goes on, and its reply."""
    for call in calls:
        outcome = text_outcome("ok", "21 C", is_error=False)
        message = ToolResultMessage(call_id=call.call_id, name=call.name, outcome=outcome)
        await agent.append(MessageEntry(id=new_id(), message=message))
    parked, agent.run_id = agent.run_id, new_id()
    start = RunStartEntry(
        id=new_id(), run_id=agent.run_id, agent="main", model="m", mode="ask", resumes=parked
    )
    await agent.append(start)
    await agent.reply(new_id(), text, usage=Usage(input_tokens=7, output_tokens=3))
    await agent.end()


async def ask(client: openai.AsyncOpenAI, *messages: Any, **more: Any) -> Any:
    return await client.chat.completions.create(model="main", messages=list(messages), tools=TOOLS, **more)


def answered(call_id: str, text: str = "21 C") -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


async def test_calls_are_told_and_their_results_continue_the_run(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    asking = asyncio.create_task(ask(client, ASKED, tool_choice="required"))
    agent = await agent_of(bus)
    calls = await call_weather(agent, "Bonn", "Ulm")
    first = await asking
    choice = first.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I ask.")
    assert [(each.id, json.loads(each.function.arguments)) for each in choice.message.tool_calls] == [
        (calls[0].call_id, {"city": "Bonn"}),
        (calls[1].call_id, {"city": "Ulm"}),
    ]
    assert first.fairlead == {"session": agent.session, "outcome": "requires_action", "approvals": []}
    (prompt,) = await prompts(bus)
    asked = json.loads(prompt.data)
    assert [tool["name"] for tool in asked["client_tools"]] == ["weather"]
    assert asked["tool_choice"] == "required"

    history = [ASKED, {**choice.message.model_dump(exclude_none=True), "content": None}]
    with pytest.raises(openai.BadRequestError, match=calls[1].call_id):
        await ask(client, *history, answered(calls[0].call_id))
    answers = [answered(calls[0].call_id), answered(calls[1].call_id, "19 C")]
    asking = asyncio.create_task(ask(client, *history, *answers))
    found = await results(bus, 2)
    assert [(each["call_id"], each["text"], each["sender"]) for each in found] == [
        (calls[0].call_id, "21 C", "admin"),
        (calls[1].call_id, "19 C", "admin"),
    ]
    await go_on(agent, calls, "Both are warm.")
    second = await asking
    assert second.choices[0].message.content == "Both are warm."
    assert (second.choices[0].finish_reason, second.usage.prompt_tokens) == ("stop", 7)
    assert len(await prompts(bus)) == 1

    last = {"role": "assistant", "content": "Both are warm."}
    asking = asyncio.create_task(ask(client, *history, *answers, last, {"role": "user", "content": "Thanks"}))
    async with asyncio.timeout(20):
        while len(thanked := await prompts(bus)) < 2:
            await asyncio.sleep(0.01)
    assert subjects.parse_session(thanked[1].subject).session == agent.session
    assert json.loads(thanked[1].data)["text"] == "Thanks"
    asking.cancel()


async def test_calls_are_streamed_with_their_index(client: openai.AsyncOpenAI, bus: Bus) -> None:
    async with asyncio.TaskGroup() as tasks:

        async def play() -> None:
            await call_weather(await agent_of(bus), "Bonn", "Ulm", text="")

        tasks.create_task(play())
        async with client.chat.completions.stream(model="main", messages=[ASKED], tools=TOOLS) as stream:
            final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert [json.loads(each.function.arguments)["city"] for each in calls] == ["Bonn", "Ulm"]
    assert final.choices[0].finish_reason == "tool_calls"
    assert not final.choices[0].message.content


async def test_results_that_are_sent_again_are_one_and_a_second_answer_to_them_is_a_fork(
    client: openai.AsyncOpenAI, gateway: RunningGateway, bus: Bus
) -> None:
    asking = asyncio.create_task(ask(client, ASKED))
    agent = await agent_of(bus)
    (call,) = await call_weather(agent, "Bonn")
    message = (await asking).choices[0].message.model_dump(exclude_none=True)
    body = {"model": "main", "messages": [ASKED, message, answered(call.call_id)], "tools": TOOLS}
    content = json.dumps({**body, "stream": True})
    for count in "01":  # the client lost its connection, and sends it again
        headers = {"x-stainless-retry-count": count}
        async with gateway.http.stream(
            "POST", "/v1/chat/completions", content=content, headers=headers
        ) as response:
            assert response.headers["x-fairlead-session"] == agent.session
    assert len(await results(bus, 1)) == 1
    await go_on(agent, [call], "Warm.")
    again = asyncio.create_task(ask(client, *body["messages"]))  # another request: another answer
    other = await agent_of(bus, 1)
    assert other.session != agent.session
    await other.reply("m", "Warm, I said.")
    await other.end()
    assert (await again).choices[0].message.content == "Warm, I said."
    assert len(await results(bus, 1)) == 1


@pytest.mark.parametrize("named", [False, True])
async def test_a_client_that_wants_one_call_at_a_time_is_told_of_the_first_and_answers_that_alone(
    client: openai.AsyncOpenAI, bus: Bus, named: bool
) -> None:
    headers = {"X-Fairlead-Session": "mine"} if named else {}
    more: Any = {"parallel_tool_calls": False, "extra_headers": headers}
    asking = asyncio.create_task(ask(client, ASKED, **more))
    agent = await agent_of(bus)
    calls = await call_weather(agent, "Bonn", "Ulm")
    choice = (await asking).choices[0]
    assert (choice.finish_reason, len(choice.message.tool_calls)) == ("tool_calls", 1)
    message = choice.message.model_dump(exclude_none=True)
    result = answered(choice.message.tool_calls[0].id)
    asking = asyncio.create_task(ask(client, ASKED, message, result, **more))
    first, second = await results(bus, 2)
    assert (first["call_id"], first["text"]) == (calls[0].call_id, "21 C")
    assert (second["call_id"], second["is_error"]) == (calls[1].call_id, True)
    assert "not started" in second["text"]
    await go_on(agent, calls, "Warm.")
    assert (await asking).choices[0].message.content == "Warm."
    assert len(await prompts(bus)) == 1


async def test_one_call_at_a_time_is_streamed_alone(client: openai.AsyncOpenAI, bus: Bus) -> None:
    asking = asyncio.create_task(ask(client, ASKED, stream=True, parallel_tool_calls=False))
    agent = await agent_of(bus)
    await call_weather(agent, "Bonn", "Ulm")
    told = [chunk async for chunk in await asking if chunk.choices]
    pieces = [call for chunk in told for call in chunk.choices[0].delta.tool_calls or ()]
    assert {call.index for call in pieces} == {0}
    assert "Bonn" in "".join(call.function.arguments for call in pieces)
    assert told[-1].choices[0].finish_reason == "tool_calls"


async def test_words_beside_results_steer_the_run_and_a_named_session_finds_its_calls(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    named = {"X-Fairlead-Session": "mine"}
    asking = asyncio.create_task(ask(client, ASKED, extra_headers=named))
    agent = await agent_of(bus)
    (call,) = await call_weather(agent, "Bonn")
    message = (await asking).choices[0].message.model_dump(exclude_none=True)
    more = {"role": "user", "content": "In Fahrenheit, please."}
    asking = asyncio.create_task(
        ask(client, ASKED, message, answered(call.call_id), more, extra_headers=named)
    )
    await results(bus, 1)
    steers: list[Any] = []
    async with asyncio.timeout(20):
        while not steers:
            steers = await prompts(bus, "steer")
    assert json.loads(steers[0].data)["text"] == "In Fahrenheit, please."
    assert len(await prompts(bus)) == 1
    asking.cancel()
    await until(asking.done, "the client has left")


async def test_a_result_of_words_and_a_picture_is_kept_with_both(
    client: openai.AsyncOpenAI, gateway: RunningGateway, bus: Bus
) -> None:
    asking = asyncio.create_task(ask(client, ASKED))
    agent = await agent_of(bus)
    (call,) = await call_weather(agent, "Bonn")
    message = (await asking).choices[0].message.model_dump(exclude_none=True)
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aQ=="}}
    result = {**answered(call.call_id), "content": [{"type": "text", "text": "21 C"}, picture]}
    drawing = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,aQ=="}}
    with pytest.raises(openai.BadRequestError, match="image/svg"):
        await ask(client, ASKED, message, {**result, "content": [drawing]})
    asking = asyncio.create_task(ask(client, ASKED, message, result))
    (found,) = await results(bus, 1)
    [image] = found["images"]
    assert (found["text"], image["media_type"]) == ("21 C", "image/png")
    assert await gateway.gateway.objects.get(image["object"]) == b"i"
    await go_on(agent, [call], "Warm.")
    assert (await asking).choices[0].message.content == "Warm."


async def test_an_output_of_a_response_may_have_a_picture(
    client: openai.AsyncOpenAI, gateway: RunningGateway, bus: Bus
) -> None:
    tool: Any = {**TOOLS[0]["function"], "type": "function", "strict": False}
    asking = asyncio.create_task(client.responses.create(model="main", input="How warm?", tools=[tool]))
    agent = await agent_of(bus)
    (call,) = await call_weather(agent, "Bonn", text="")
    first = await asking
    [called] = [item for item in first.output if item.type == "function_call"]
    url = "data:image/png;base64,aQ=="
    output: Any = [{"type": "input_text", "text": "21 C"}, {"type": "input_image", "image_url": url}]
    given: Any = {"type": "function_call_output", "call_id": called.call_id, "output": output}
    asking = asyncio.create_task(
        client.responses.create(model="main", input=[given], previous_response_id=first.id, tools=[tool])
    )
    (found,) = await results(bus, 1)
    assert (found["text"], len(found["images"])) == ("21 C", 1)
    await go_on(agent, [call], "Warm.")
    second = await asking
    assert second.output_text == "Warm."
    [item] = (await client.responses.input_items.list(second.id)).data
    assert [part["type"] for part in item.model_dump()["output"]] == ["input_text", "input_image"]


RESPONSE_TOOLS: list[Any] = [{**TOOLS[0]["function"], "type": "function", "strict": False}]


def output_of(call: Any, text: str) -> Any:
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}


async def two_calls_answered(client: openai.AsyncOpenAI, bus: Bus) -> tuple[Any, Any]:
    """A response with two calls, and the response to their outputs."""
    asking = asyncio.create_task(
        client.responses.create(model="main", input="How warm?", tools=RESPONSE_TOOLS)
    )
    agent = await agent_of(bus)
    calls = await call_weather(agent, "Bonn", "Ulm", text="")
    asked = await asking
    outputs = [output_of(call, f"{21 + n} C") for n, call in enumerate(asked.output)]
    asking = asyncio.create_task(
        client.responses.create(model="main", input=outputs, previous_response_id=asked.id)
    )
    await results(bus, 2)
    await go_on(agent, calls, "Warm.")
    return asked, await asking


@pytest.mark.parametrize("form", ["previous", "items", "items without ids"])
async def test_other_outputs_of_the_same_calls_are_another_branch(
    client: openai.AsyncOpenAI, gateway: RunningGateway, bus: Bus, form: str
) -> None:
    asked, first = await two_calls_answered(client, bus)
    outputs = [output_of(call, f"{31 + n} C") for n, call in enumerate(asked.output)]
    before: list[Any] = [{"role": "user", "content": "How warm?"}, *(each.to_dict() for each in asked.output)]
    if form == "items without ids":
        before = [{name: value for name, value in each.items() if name != "id"} for each in before]
    more: Any = (
        {"input": outputs, "previous_response_id": asked.id}
        if form == "previous"
        else {"input": [*before, *outputs]}
    )
    asking = asyncio.create_task(client.responses.create(model="main", tools=RESPONSE_TOOLS, **more))
    other = await agent_of(bus, 1)
    assert other.session != first.to_dict()["fairlead"]["session"]
    notice = await bus.last(subjects.SESSIONS, subjects.mail(other.session, "notice", "create"))
    assert notice is not None
    begun = await gateway.gateway.objects.get(json.loads(notice.data)["fork"]["object"])
    assert b"31 C" in begun
    assert b"32 C" in begun
    assert b"resp-" not in begun.split(b"31 C")[1]  # the calls have the ids that the session knows
    await other.reply("m", "Hot.")
    await other.end()
    assert (await asking).output_text == "Hot."
    assert len(await results(bus, 2)) == 2
    same = [output_of(call, f"{21 + n} C") for n, call in enumerate(asked.output)]
    again = await client.responses.create(model="main", input=same, previous_response_id=asked.id)
    assert again.id == first.id


async def test_outputs_are_refused_that_do_not_fit_the_calls_of_a_response_that_was_answered(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    asked, first = await two_calls_answered(client, bus)
    one, two = (output_of(call, "31 C") for call in asked.output)
    strange = {"type": "function_call_output", "call_id": "call_nobody", "output": "1"}
    cases: list[tuple[Any, str | None, str]] = [
        ([one], asked.id, "No tool output found"),
        ("and?", asked.id, "No tool output found"),
        ([one, two, strange], asked.id, "No tool call found .* call_nobody"),
        ([one, two, strange], None, "No tool call found .* call_nobody"),
        ([strange], first.id, "No tool call found .* call_nobody"),
    ]
    for given, previous, problem in cases:
        more: Any = {"previous_response_id": previous} if previous else {}
        with pytest.raises(openai.BadRequestError, match=problem):
            await client.responses.create(model="main", input=given, **more)
    with pytest.raises(openai.ConflictError, match="has another output already"):
        await client.responses.create(model="main", input=[one, two])
    assert len(await prompts(bus)) == 1


async def test_all_outputs_that_a_response_was_asked_with_are_its_input_items(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    asked, first = await two_calls_answered(client, bus)
    page = await client.responses.input_items.list(first.id, order="asc")
    found: list[Any] = page.data
    assert [(each.call_id, each.output) for each in found] == [
        (call.call_id, f"{21 + n} C") for n, call in enumerate(asked.output)
    ]
    page = await client.responses.input_items.list(first.id, order="asc", limit=1)
    assert [each.id for each in page.data] == [found[0].id]
    assert page.has_next_page()
    session = first.to_dict()["fairlead"]["session"]
    items = [each.type async for each in client.conversations.items.list(f"conv_{session}", order="asc")]
    assert items == ["message", *["function_call"] * 2, *["function_call_output"] * 2, "message"]


async def test_a_reference_to_an_item_that_no_response_has_is_refused(
    client: openai.AsyncOpenAI, bus: Bus
) -> None:
    given: Any = [{"type": "item_reference", "id": "msg_nobody"}, {"role": "user", "content": "go"}]
    with pytest.raises(openai.NotFoundError, match="msg_nobody") as refused:
        await client.responses.create(model="main", input=given)
    assert refused.value.param == "input[0].id"
    assert await prompts(bus) == []
