"""The SDK's client against a real gateway: what is repeated, resumed and refused."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects
from fairlead_common.protocol.projections import ApprovalSummary, approval_key
from fairlead_sdk import Client, ConflictError, Event, InvalidInputError, NotFoundError, UnavailableError
from fairlead_sdk.errors import UnauthorizedError
from tests.integration.gateway_fixture import TOKEN, running_gateway
from tests.support.fairlead_up import FairleadUp
from tests.support.nats_server import NatsServer
from tests.support.ports import free_port


async def test_refusals_are_typed_and_name_the_field(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with running_gateway(nats_server.url, tmp_path) as gateway, Client(gateway.url, TOKEN) as client:
        made = await client.create_session(id="mine", title="first", deny=["write"])
        assert (made.id, made.title, made.deny) == ("mine", "first", ["write"])
        with pytest.raises(ConflictError):
            await client.create_session(id="mine")
        with pytest.raises(InvalidInputError) as refused:
            await client.change_session("mine", title="x" * 501)
        assert (refused.value.field, refused.value.limit) == ("title", 500)
        with pytest.raises(NotFoundError):
            await client.session("nonesuch")
        first = await client.prompt("mine", "hello", key="k")
        assert await client.prompt("mine", "hello", key="k") == first
        with pytest.raises(ConflictError):
            await client.prompt("mine", "other words", key="k")
        assert [each.id for each in (await client.sessions()).sessions] == ["mine"]
        assert await client.approvals() == []
        arguments: dict[str, object] = {"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}
        shown = ApprovalSummary(id="q1", session="mine", kind="question", arguments=arguments, shown_hash="h")
        await bus.publish(subjects.kv("sessions", approval_key("q1")), msgspec.json.encode(shown))
        async with asyncio.timeout(20):
            while not (questions := await client.approvals()):
                await asyncio.sleep(0.02)
        assert questions[0].kind == "question"
        with pytest.raises(InvalidInputError, match="must be of the choices"):
            await client.answer(questions[0], ["C"])
        await client.answer(questions[0], ["A"])
        with pytest.raises(ConflictError):
            await client.answer(questions[0], "B")
    async with running_gateway(nats_server.url, tmp_path) as gateway, Client(gateway.url, "wrong") as client:
        with pytest.raises(UnauthorizedError):
            await client.sessions()


@pytest.mark.process
async def test_a_server_that_is_not_there_is_waited_for_and_then_named() -> None:
    async with Client(f"http://127.0.0.1:{free_port()}", TOKEN, patience_s=0.5) as client:
        with pytest.raises(UnavailableError, match="no answer: ConnectError"):
            await client.session("s")
        with pytest.raises(UnavailableError):
            async for _ in client.events("s"):
                pass


def test_an_answer_comes_whole_although_the_gateway_is_killed_meanwhile(tmp_path: Path) -> None:
    with FairleadUp(tmp_path / "home", sets=["models.demo_delay_s=0.1"]) as up:
        seen: list[Event] = []

        async def follow(client: Client, session: str) -> None:
            async for event in client.events(session):
                seen.append(event)
                if event.type == "agent_end":
                    return

        async def ask() -> None:
            async with asyncio.timeout(90), Client(up.base_url, up.token, patience_s=40) as client:
                session = (await client.create_session()).id
                following = asyncio.create_task(follow(client, session))
                answering = asyncio.create_task(client.ask(session, "hello"))
                while not any(event.type == "message_update" for event in seen):
                    await asyncio.sleep(0.02)
                old = up.kill("gateway")
                stored = await client.prompt(session, "again", key="k")  # while it is away
                await asyncio.to_thread(up.wait_restarted, "gateway", old_pid=old)
                assert await client.prompt(session, "again", key="k") == stored
                answer = await answering
                assert answer.outcome == "completed"
                assert "demo model" in answer.text
                await following

        asyncio.run(ask())
    entries = [(event.data["seq"], event.data.get("index", 0)) for event in seen if event.type == "entry"]
    assert entries == sorted(set(entries))
    assert len(entries) >= 3
    assert [event.type for event in seen].count("agent_end") == 1
