"""OpenAI's SDKs: conversations without a session's name, tools, parsed answers, and a killed gateway."""

import asyncio
import json
import time
from typing import Any

import openai
from pydantic import BaseModel

from tests.clients.stack import AGENT, Stack

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "How warm it is.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = 'steps=1 tool=weather args={"city":"Bonn"}'


class City(BaseModel):
    """A city."""

    name: str
    degrees: int


def sdk(stack: Stack, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=stack.openai_url, api_key=stack.up.token, timeout=60, **more)


def test_tools_loop_and_the_conversation_is_one_session(stack: Stack) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": f'op=PYTOOL {CALL} answer="It is warm."'},
    ]
    sessions: list[str] = []
    starts = 0
    with sdk(stack) as client:
        for _ in range(2):
            while True:
                answer: Any = client.chat.completions.create(model=AGENT, messages=messages, tools=[WEATHER])
                message = answer.choices[0].message
                sessions.append(answer.fairlead["session"])
                messages.append(message)
                if answer.choices[0].finish_reason != "tool_calls":
                    break
                for call in message.tool_calls:
                    starts += 1
                    assert json.loads(call.function.arguments) == {"city": "Bonn"}
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": "21 C"})
            assert message.content.strip() == "It is warm."
            messages.append({"role": "user", "content": f'op=PYAGAIN {CALL} answer="It is warm."'})
    assert (len(sessions), len(set(sessions)), starts) == (4, 1, 2)
    entries = stack.up.entries(sessions[0])
    said = [each["message"] for each in entries if each["type"] == "message"]
    assert [each["role"] for each in said] == ["user", "assistant", "tool_result", "assistant"] * 2


def test_old_functions_are_called_in_their_old_form(stack: Stack) -> None:
    messages: list[Any] = [{"role": "user", "content": f'op=PYOLD {CALL} answer="It is warm."'}]
    words = ""
    with sdk(stack) as client:
        for wanted in ("function_call", "stop"):
            choice = client.chat.completions.create(
                model=AGENT, messages=messages, functions=[WEATHER["function"]]
            ).choices[0]
            assert choice.finish_reason == wanted
            messages.append(choice.message)
            words = choice.message.content or ""
            if choice.message.function_call:
                assert json.loads(choice.message.function_call.arguments) == {"city": "Bonn"}
                messages.append({"role": "function", "name": "weather", "content": "21 C"})
    assert words.strip() == "It is warm."


def test_a_limit_cuts_the_last_reply_and_no_call(stack: Stack) -> None:
    text = 'op=PYMAX steps=1 run="true" answer="It is warm in Bonn."'
    with sdk(stack) as client:
        chat = client.chat.completions.create(
            model=AGENT, messages=[{"role": "user", "content": text}], max_completion_tokens=2
        )
        response = client.responses.create(
            model=AGENT, input=text.replace("PYMAX", "PYMAXR"), max_output_tokens=2
        )
    assert (chat.choices[0].message.content or "").endswith("It is wa")
    assert chat.choices[0].finish_reason == "length"
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output_text.endswith("It is wa")
    assert "mcp_call" in [item.type for item in response.output]


def test_streamed_calls_are_put_together(stack: Stack) -> None:
    with (
        sdk(stack) as client,
        client.chat.completions.stream(
            model=AGENT, messages=[{"role": "user", "content": f"op=PYSTREAM {CALL}"}], tools=[WEATHER]
        ) as stream,
    ):
        answer = stream.get_final_completion()
    assert answer.choices[0].finish_reason == "tool_calls"
    [call] = answer.choices[0].message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Bonn"})


def test_an_answer_is_parsed_also_behind_a_tool_of_the_agent(stack: Stack) -> None:
    text = 'op=PYPARSE steps=1 run="true" answer={"name":"Bonn","degrees":21}'
    with sdk(stack) as client:
        answer = client.chat.completions.parse(
            model=AGENT, messages=[{"role": "user", "content": text}], response_format=City
        )
    assert answer.choices[0].message.parsed == City(name="Bonn", degrees=21)


def test_a_model_is_described(stack: Stack) -> None:
    with sdk(stack) as client:
        model = client.models.retrieve(AGENT)
    assert (model.id, model.object, model.owned_by) == (AGENT, "model", "fairlead")
    assert (model.model_extra or {})["provider_model"] == "openai/scripted"
    assert abs(time.time() - model.created) < 3600


async def test_a_gateway_that_is_killed_costs_no_turn_and_no_choice_and_starts_nothing_twice(
    stack: Stack,
) -> None:
    ledger, choices = stack.ledger("killed-chat"), stack.ledger("killed-choices")
    go = ledger.with_suffix(".go")
    command = f"echo ran >> {ledger}; until [ -e {go} ]; do sleep 0.05; done"
    in_each = f"echo ran >> {choices}; until [ -e {go} ]; do sleep 0.05; done"
    messages: list[Any] = [{"role": "user", "content": "op=PYK1"}]
    client = openai.AsyncOpenAI(base_url=stack.openai_url, api_key=stack.up.token, timeout=60, max_retries=12)
    async with client:
        first: Any = await client.chat.completions.create(model=AGENT, messages=messages)
        messages.append(first.choices[0].message)
        messages.append({"role": "user", "content": f'op=PYK2 steps=1 run="{command}"'})
        asking = asyncio.create_task(
            client.chat.completions.create(model=AGENT, messages=messages, tools=[WEATHER])
        )
        choosing = asyncio.create_task(
            client.chat.completions.create(
                model=AGENT,
                messages=[*messages[:2], {"role": "user", "content": f'op=PYKN steps=1 run="{in_each}"'}],
                n=3,
            )
        )
        async with asyncio.timeout(60):
            while not (ledger.exists() and choices.exists() and choices.read_text() == "ran\n" * 3):
                await asyncio.sleep(0.02)
        stack.up.kill("gateway")
        await asyncio.to_thread(stack.up.wait_restarted, "gateway", timeout_s=60)
        await asyncio.to_thread(stack.up.wait_ready, 60)
        go.touch()
        second: Any = await asking
        chosen: Any = await choosing
        assert second.choices[0].message.content.strip() == "done PYK2"
        messages += [second.choices[0].message, {"role": "user", "content": "op=PYK3"}]
        third: Any = await client.chat.completions.create(model=AGENT, messages=messages)
    assert first.fairlead["session"] == second.fairlead["session"] == third.fairlead["session"]
    assert ledger.read_text() == "ran\n"
    assert [each.message.content.strip() for each in chosen.choices] == ["done PYKN"] * 3
    sessions = {each.fairlead["session"] for each in chosen.choices}
    assert len(sessions) == 3
    assert first.fairlead["session"] not in sessions
    assert choices.read_text() == "ran\n" * 3


def test_javascript_runs_tools_and_parses(stack: Stack) -> None:
    found = stack.run_javascript("openai_tools.mjs")
    assert found["tools"] == {"text": "It is warm.", "calls": ["Bonn"]}
    assert found["parsed"] == {"name": "Bonn", "degrees": 21}
