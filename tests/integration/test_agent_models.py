"""An agent on models whose servers behave as their vendors' do: oddly, and strictly."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_common.bus import Bus
from fairlead_common.content import AssistantMessage, ToolResultMessage
from tests.support.agent_world import World, agent_service, world
from tests.support.nats_server import NatsServer
from tests.support.strict_model import Answer, StrictModel, call, calls, refuse, said, text


@pytest.fixture
async def w(bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with world(bus, tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
async def model(w: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StrictModel]:
    async with StrictModel() as made:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{made.url}/v1")
        yield made
        assert made.refused == []


X, Y = {"path": "x"}, {"path": "y"}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            calls(
                call(X, "read", index=0, id="call_1", type="function"),
                call(Y, "read", index=0, id="call_2", type="function"),
                finish="stop",
            ),
            id="Ollama: one index, whole calls, finish_reason stop",
        ),
        pytest.param(
            calls(call(X, "read", id="", type="function"), call(Y, "read", id="", type="function")),
            id="Gemini's compatible endpoint: no index, empty ids",
        ),
    ],
)
async def test_parallel_calls_without_numbers_of_their_own_are_each_made(
    w: World, model: StrictModel, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    model.answers = [answer, text("both read")]
    async with agent_service(nats_server, monkeypatch):
        await w.say("a", "read both")
        end = await w.run_end("a")
    assert (end.outcome, end.turns) == ("completed", 2)
    assert sorted(str(made.arguments["path"]) for made in w.calls) == ["x", "y"]
    results = [each for each in await w.messages("a") if isinstance(each, ToolResultMessage)]
    assert [each.outcome.status for each in results] == ["ok", "ok"]
    ids = [each["tool_call_id"] for each in model.last() if each["role"] == "tool"]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("error", "code", "requests"),
    [
        ('{"message": "The request was malformed", "code": 400}', "model_request_refused", 1),
        ('{"message": "Key is revoked", "code": "invalid_api_key"}', "model_auth", 1),
        ('{"message": "You ran out", "type": "insufficient_quota"}', "model_quota_exceeded", 1),
        ('{"message": "Try later", "code": 503}', "model_unavailable", 3),
        ('"overloaded"', "model_unavailable", 3),
    ],
)
async def test_error_inside_a_stream_ends_the_run_in_its_own_words_and_is_retried_if_it_may_pass(
    w: World,
    model: StrictModel,
    nats_server: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    error: str,
    code: str,
    requests: int,
) -> None:
    model.answers = [said(f'data: {{"error": {error}}}\n\n')] * 5
    async with agent_service(nats_server, monkeypatch, settings={"models.retries": 2}):
        await w.say("a", "hello")
        end = await w.run_end("a")
    assert (end.outcome, end.error_code, len(model.requests)) == ("failed", code, requests)
    told = error.split('"')[3] if "{" in error else "overloaded"
    assert told in (end.error or "")


async def test_quota_that_is_used_up_is_not_asked_again(
    w: World, model: StrictModel, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.answers = [refuse(429, "You exceeded your current quota", code="insufficient_quota")]
    async with agent_service(nats_server, monkeypatch):
        await w.say("a", "hello")
        end = await w.run_end("a")
    assert (end.outcome, end.error_code, len(model.requests)) == ("failed", "model_quota_exceeded", 1)
    assert not any(isinstance(each, AssistantMessage) for each in await w.messages("a"))
