"""pydantic-ai."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel

from tests.clients.stack import AGENT, Stack
from tests.support.waiting import eventually

pydantic_ai = pytest.importorskip("pydantic_ai")
openai_models = pytest.importorskip("pydantic_ai.models.openai")
openai_provider = pytest.importorskip("pydantic_ai.providers.openai")


class City(BaseModel):
    """A city."""

    name: str
    degrees: int


def agent(stack: Stack, **more: Any) -> Any:
    provider = openai_provider.OpenAIProvider(base_url=stack.openai_url, api_key=stack.up.token)
    model = openai_models.OpenAIChatModel(AGENT, provider=provider)
    return pydantic_ai.Agent(model, instructions="Be brief.", **more)


async def test_tools_are_run_and_a_history_goes_on_in_its_session(stack: Stack) -> None:
    cities: list[str] = []
    asked = agent(stack)

    def weather(city: str) -> str:
        """How warm it is."""
        cities.append(city)
        return "21 C"

    asked.tool_plain(weather)
    call = 'steps=1 tool=weather args={"city":"Bonn"} answer="It is warm."'
    first = await asked.run(f"op=PATOOL {call}")
    assert (first.output.strip(), cities) == ("It is warm.", ["Bonn"])
    second = await asked.run(f"op=PAMORE {call}", message_history=first.all_messages())
    assert (second.output.strip(), cities) == ("It is warm.", ["Bonn", "Bonn"])

    def listed() -> list[str]:
        page = stack.up.api("GET", "/api/sessions?source=api&limit=1000")
        return [each["id"] for each in page["sessions"] if each["title"].startswith("op=PATOOL")]

    [session] = await asyncio.to_thread(eventually, listed, "the session is listed with its title")
    said = [each["message"] for each in stack.up.entries(session) if each["type"] == "message"]
    assert [each["role"] for each in said] == ["user", "assistant", "tool_result", "assistant"] * 2


async def test_output_types(stack: Stack) -> None:
    formed = '{"name":"Bonn","degrees":21}'
    result = await agent(stack, output_type=City).run(f"op=PATYPE steps=1 tool=final_result args={formed}")
    assert result.output == City(name="Bonn", degrees=21)
    native = pydantic_ai.NativeOutput(City)
    result = await agent(stack, output_type=native).run(f"op=PANATIVE answer={formed}")
    assert result.output == City(name="Bonn", degrees=21)
