"""OpenAI's SDKs: conversations without a session's name, tools, parsed answers, and a killed gateway."""

import asyncio
import json
import time
from typing import Any

import openai
from pydantic import BaseModel

from tests.clients.stack import AGENT, CAREFUL, Stack
from tests.support.waiting import eventually

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


def on_branch(stack: Stack, session: str) -> list[str]:
    """What is said on the branch that the session is on: of users their `id`, of the model its words."""
    entries = {each["id"]: each for each in stack.up.entries(session)}
    at = next(reversed(entries))
    said: list[str] = []
    while at in entries:
        message = entries[at].get("message", {})
        text = "".join(part.get("text", "") for part in message.get("content", []))
        if message.get("role") in ("user", "assistant"):
            said.insert(0, text.partition("id=")[2] or text.strip())
        at = entries[at].get("parent_id") or ""
    return said


def test_edited_messages_and_other_answers_of_a_named_chat_are_branches_of_its_session(stack: Stack) -> None:
    chat = "chat-of-a-program"
    with sdk(stack, default_headers={"X-OpenWebUI-Chat-Id": chat}) as client:

        def ask(*said: str) -> str:
            messages: Any = [
                {"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(said)
            ]
            answer = client.chat.completions.create(model=AGENT, messages=messages)
            return (answer.choices[0].message.content or "").strip()

        first, second = 'answer="one" id=BR1', 'answer="two" id=BR2'
        one = ask(first)
        two = ask(first, one, second)
        assert on_branch(stack, chat) == ["BR1", "one", "BR2", "two"]
        ask(first, one, second)  # another answer
        assert on_branch(stack, chat) == ["BR1", "one", "BR2", "two"]
        third = ask(first, one, 'answer="three" id=BR3')  # the second message is edited
        assert on_branch(stack, chat) == ["BR1", "one", "BR3", "three"]
        ask(first, one, 'answer="three" id=BR3', third, 'answer="four" id=BR4')
        assert on_branch(stack, chat) == ["BR1", "one", "BR3", "three", "BR4", "four"]
        ask(first, one, second, two, 'answer="five" id=BR5')  # back on the other branch
        assert on_branch(stack, chat) == ["BR1", "one", "BR2", "two", "BR5", "five"]
        ask('answer="six" id=BR6')  # the first message is edited
        assert on_branch(stack, chat) == ["BR6", "six"]
        # What is said in the page meanwhile stays: the chat goes on behind it.
        stack.up.ask('answer="page" id=BR7', session=chat)
        ask('answer="six" id=BR6', "six", 'answer="eight" id=BR8')
        assert on_branch(stack, chat) == ["BR6", "six", "BR7", "page", "BR8", "eight"]

    def ends() -> list[str]:
        return [each["outcome"] for each in stack.up.entries(chat) if each["type"] == "run_end"]

    eventually(lambda: len(ends()) >= 9, "the last run has ended, which its answer does not wait for")
    assert ends() == ["completed"] * 9


def test_a_repeated_request_of_a_chat_goes_back_once(stack: Stack) -> None:
    chat = "chat-that-repeats"
    headers = {"X-OpenWebUI-Chat-Id": chat}
    with sdk(stack, default_headers=headers) as client:
        messages: list[Any] = [{"role": "user", "content": 'answer="one" id=RE1'}]
        for key in ("a", "b", "b", "a"):
            client.chat.completions.create(
                model=AGENT, messages=messages, extra_headers={"Idempotency-Key": f"again-{key}"}
            )

    def kinds() -> list[str]:
        return [each["type"] for each in stack.up.entries(chat)]

    eventually(lambda: kinds().count("run_end") >= 2, "the last run has ended")
    assert (kinds().count("navigate"), kinds().count("run_end")) == (1, 2)


def test_a_program_that_sends_only_what_is_new_does_not_begin_its_conversation_again(stack: Stack) -> None:
    name = "conversation-of-a-program"
    with sdk(stack, default_headers={"X-Conversation-Id": name}) as client:
        for number in (1, 2):
            text = f'answer="{number}" id=NEW{number}'
            client.chat.completions.create(model=AGENT, messages=[{"role": "user", "content": text}])
    assert on_branch(stack, name) == ["NEW1", "1", "NEW2", "2"]


def test_another_agent_in_a_named_chat_works_in_a_session_of_its_own_and_knows_what_was_said(
    stack: Stack,
) -> None:
    ledger = stack.ledger("agents-of-a-chat")
    run = f'op=AGENTS steps=1 run="echo ran >> {ledger}"'
    with sdk(stack, default_headers={"X-OpenWebUI-Chat-Id": "chat-of-two-agents"}) as client:

        def ask(model: str, *said: str) -> Any:
            messages: Any = [
                {"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(said)
            ]
            return client.chat.completions.create(model=model, messages=messages)

        first = ask(AGENT, 'answer="one" id=AG1')
        second = ask(CAREFUL, 'answer="one" id=AG1', "one", run)
        back = ask(AGENT, 'answer="one" id=AG1', "one", 'answer="two" id=AG2')
    assert first.fairlead["session"] == back.fairlead["session"] == "chat-of-two-agents"
    session = second.fairlead["session"]
    assert session != "chat-of-two-agents"
    assert second.fairlead["outcome"] == "waiting_approval"  # it asks, as that agent does
    assert not ledger.exists()
    assert stack.up.api("GET", f"/api/sessions/{session}")["agent"] == CAREFUL
    assert on_branch(stack, "chat-of-two-agents") == ["AG1", "one", "AG2", "two"]
    forked = [each for each in stack.up.entries(session) if each["type"] == "fork"]
    assert len(forked) == 1


async def test_a_message_right_behind_an_answer_that_was_broken_off_is_answered(stack: Stack) -> None:
    """As after a click on a stop button: the SDK could still send its request again, but does not."""
    said: list[Any] = [{"role": "user", "content": "id=PYHALF say 300 tokens rate=20"}]
    async with openai.AsyncOpenAI(
        base_url=stack.openai_url, api_key=stack.up.token, timeout=60, max_retries=0
    ) as client:
        for number in range(3):
            stream = await client.chat.completions.create(model=AGENT, messages=said, stream=True)
            text = ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if len(text) > 20:
                    break
            await stream.close()
            said += [
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"id=PYNEXT{number} say 2 tokens"},
            ]
            answer = await client.chat.completions.create(model=AGENT, messages=said)
            assert (answer.choices[0].message.content or "").strip() == "word word"
            said += [
                {"role": "assistant", "content": answer.choices[0].message.content},
                {"role": "user", "content": f"id=PYHALF{number} say 300 tokens rate=20"},
            ]


async def test_fifty_equal_requests_at_once_are_fifty_runs(stack: Stack) -> None:
    said: list[Any] = [{"role": "user", "content": "id=PYFIFTY say 3 tokens"}]
    async with openai.AsyncOpenAI(base_url=stack.openai_url, api_key=stack.up.token, timeout=60) as client:
        asking = [
            client.chat.completions.create(model=AGENT, messages=said, extra_headers=headers)
            for headers in ({}, {"x-stainless-retry-count": ""})
            for _ in range(25)
        ]
        answers: list[Any] = await asyncio.gather(*asking)
    assert {each.choices[0].message.content.strip() for each in answers} == {"word word word"}
    assert len({each.fairlead["session"] for each in answers}) == 50


def test_as_many_tools_as_there_may_be_and_a_long_result(stack: Stack) -> None:
    tools: list[Any] = [
        {"type": "function", "function": {"name": f"tool{number}", "description": "d" * 100}}
        for number in range(128)
    ]
    said: list[Any] = [{"role": "user", "content": "op=PYMANY steps=1 tool=tool127 args={} answer=warm"}]
    with sdk(stack) as client:
        called: Any = client.chat.completions.create(model=AGENT, messages=said, tools=tools)
        [call] = called.choices[0].message.tool_calls
        assert call.function.name == "tool127"
        said += [
            called.choices[0].message,
            {"role": "tool", "tool_call_id": call.id, "content": "x" * 3_900_000},
        ]
        answer = client.chat.completions.create(model=AGENT, messages=said, tools=tools)
        assert (answer.choices[0].message.content or "").strip() == "warm"
