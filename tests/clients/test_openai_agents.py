"""OpenAI's agents SDK as it is published: tools, handoffs, structured output and streams, over both APIs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from tests.clients.stack import AGENT, Stack

pytest.importorskip("agents")

import agents
import openai
from openai.types.responses import ResponseTextDeltaEvent

agents.set_tracing_disabled(disabled=True)


class City(BaseModel):
    """A city."""

    name: str
    degrees: int


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=stack.openai_url, api_key=stack.up.token, timeout=60) as client:
        yield client


@pytest.fixture(params=["chat", "responses"])
def model(request: pytest.FixtureRequest, client: openai.AsyncOpenAI) -> Any:
    kinds = {
        "chat": agents.OpenAIChatCompletionsModel,
        "responses": agents.OpenAIResponsesModel,
    }
    return kinds[request.param](model=AGENT, openai_client=client)


def name_of(model: Any) -> str:
    return type(model).__name__.upper()


async def test_tools_run_in_a_loop_and_a_second_turn_goes_on(model: Any) -> None:
    asked: list[str] = []

    def weather(city: str) -> str:
        """How warm it is."""
        asked.append(city)
        return "21 C"

    helper = agents.Agent(
        name="helper", instructions="Be brief.", model=model, tools=[agents.function_tool(weather)]
    )
    text = f'op=OA1{name_of(model)} steps=1 tool=weather args={{"city":"Bonn"}} answer="It is warm."'
    first = await agents.Runner.run(helper, text)
    assert (first.final_output.strip(), asked) == ("It is warm.", ["Bonn"])
    more: Any = {"role": "user", "content": f'op=OA2{name_of(model)} answer="Still warm."'}
    second = await agents.Runner.run(helper, [*first.to_input_list(), more])
    assert second.final_output.strip() == "Still warm."
    assert asked == ["Bonn"]


async def test_a_handoff_is_a_call_and_another_agent_of_the_program_goes_on(model: Any) -> None:
    expert = agents.Agent(name="expert", instructions="You know it.", model=model)
    desk = agents.Agent(name="desk", instructions="Hand over.", model=model, handoffs=[expert])
    text = f'op=OA3{name_of(model)} steps=1 tool=transfer_to_expert args={{}} answer="I know."'
    done = await agents.Runner.run(desk, text)
    assert done.last_agent.name == "expert"
    assert done.final_output.strip() == "I know."


async def test_structured_output_is_parsed(model: Any) -> None:
    helper = agents.Agent(name="helper", model=model, output_type=City)
    done = await agents.Runner.run(helper, f'op=OA4{name_of(model)} answer={{"name":"Bonn","degrees":21}}')
    assert done.final_output == City(name="Bonn", degrees=21)


async def test_a_run_is_streamed_with_its_tools(model: Any) -> None:
    asked: list[str] = []

    def weather(city: str) -> str:
        """How warm it is."""
        asked.append(city)
        return "21 C"

    helper = agents.Agent(name="helper", model=model, tools=[agents.function_tool(weather)])
    text = f'op=OA5{name_of(model)} steps=1 tool=weather args={{"city":"Ulm"}} answer="It is warm."'
    run = agents.Runner.run_streamed(helper, text)
    words = ""
    kinds: list[str] = []
    async for event in run.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            words += event.data.delta
        elif event.type == "run_item_stream_event":
            kinds.append(event.item.type)
    assert words.strip().endswith("It is warm.")
    assert asked == ["Ulm"]
    assert [kind for kind in kinds if kind != "message_output_item"] == [
        "tool_call_item",
        "tool_call_output_item",
    ]
