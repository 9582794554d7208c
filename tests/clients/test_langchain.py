"""LangChain's OpenAI models."""

from typing import Any

import pytest
from pydantic import BaseModel

from tests.clients.stack import AGENT, Stack

langchain_openai = pytest.importorskip("langchain_openai")
messages = pytest.importorskip("langchain_core.messages")
tools = pytest.importorskip("langchain_core.tools")


class City(BaseModel):
    """A city."""

    name: str
    degrees: int


def chat(stack: Stack) -> Any:
    return langchain_openai.ChatOpenAI(
        model=AGENT, base_url=stack.openai_url, api_key=stack.up.token, timeout=60
    )


def test_bound_tools_are_called_and_their_results_answered(stack: Stack) -> None:
    def how_warm(city: str) -> str:
        """How warm it is."""
        return f"21 C in {city}"

    weather = tools.tool("weather")(how_warm)
    model = chat(stack).bind_tools([weather])
    said: list[Any] = [
        messages.SystemMessage("Be brief."),
        messages.HumanMessage('op=LCTOOL steps=1 tool=weather args={"city":"Bonn"} answer="It is warm."'),
    ]
    called = model.invoke(said)
    [call] = called.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Bonn"})
    answer = model.invoke([*said, called, weather.invoke(call)])
    assert answer.text.strip() == "It is warm."


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output(stack: Stack, method: str) -> None:
    formed = '{"name":"Bonn","degrees":21}'
    text = f"op=LC{method} answer={formed}"
    if method == "function_calling":
        text = f"op=LC{method} steps=1 tool=City args={formed}"
    assert chat(stack).with_structured_output(City, method=method).invoke(text) == City(
        name="Bonn", degrees=21
    )


def test_a_stream_has_the_words_and_the_usage(stack: Stack) -> None:
    pieces = list(chat(stack).stream("op=LCSTREAM", stream_usage=True))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert whole.text.strip() == "done LCSTREAM"
    assert whole.usage_metadata["input_tokens"] > 0
