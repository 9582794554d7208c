"""OpenAI's own SDKs."""

import openai

from tests.clients.stack import AGENT, Stack


def test_python_lists_agents_as_models(stack: Stack) -> None:
    with openai.OpenAI(base_url=stack.openai_url, api_key=stack.up.token) as client:
        assert AGENT in [model.id for model in client.models.list()]


def test_javascript_streams_an_answer(stack: Stack) -> None:
    answered = stack.run_javascript("openai_stream.mjs", "say 3 tokens id=JSSTREAM")
    assert answered["finish_reason"] == "stop"
    assert answered["text"].split() == ["word"] * 3
