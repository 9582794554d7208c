"""Servers of the official SDK that ask in the middle of a call: what comes up, and what the answer does."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.messages import ToolCall
from fairlead_common.protocol.questions import CallQuestion, Question, QuestionAnswer
from tests.integration.foreign_tools_fixture import Program, pids, put, stdio, until_offered, warnings
from tests.integration.tools_fixture import HOST, WAIT_S, Host
from tests.support.mcp_servers import ASKING_SERVER
from tests.support.outcomes import text_of
from tests.support.ports import free_port
from tests.support.waiting import until

LARGE = {"size": "large", "count": 2, "gift": True}


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path / "programs", "asking", ASKING_SERVER)
    yield made
    made.stop()


async def questions(host: Host, count: int) -> list[CallQuestion]:
    """What the session was asked, once it is so much."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = [each async for each in host.bus.read(s.SESSIONS, "fairlead.session.chat.in.question.*")]
            if len(found) >= count:
                return [msgspec.json.decode(each.data, type=CallQuestion) for each in found]
            await asyncio.sleep(0.02)


async def question(host: Host, count: int = 1) -> tuple[CallQuestion, Question]:
    newest = (await questions(host, count))[-1]
    assert newest.asked is not None
    return newest, newest.asked


async def question_of(host: Host, call: ToolCall) -> CallQuestion:
    """What is asked in the name of this call."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for each in await questions(host, 1):
                if each.call_id == call.call_id and each.asked is not None:
                    return each
            await asyncio.sleep(0.02)


async def answer(host: Host, asked: CallQuestion, action: str, **values: object) -> None:
    body = msgspec.convert({"action": action, "values": values}, QuestionAnswer)
    subject = s.tool_answer(HOST, asked.call_id, asked.id)
    await host.bus.create(s.TOOLS, subject, msgspec.json.encode(body))


async def begin(host: Host, tool: str, **fields: object) -> ToolCall:
    return await host.ask(f"mcp__shop__{tool}", **{"question_s": 60, **fields})


def did(program: Program, what: str) -> int:
    return program.lines().count(what)


@pytest.mark.parametrize("era", ["new", "old"])
async def test_a_form_is_asked_and_filled_in_while_the_time_of_the_call_stands_still(
    host: Host, program: Program, era: str
) -> None:
    env = {"JOURNAL": str(program.journal), **({"OLD": "1"} if era == "old" else {})}
    put(host, shop=stdio(program, env=env))
    await host.started()
    await until_offered(host, "mcp__shop__order")
    tool = "order" if era == "new" else "old_order"
    call = await begin(host, tool, item="tea", timeout_s=2)
    asked, shown = await question(host)
    assert (asked.token, shown.server, shown.question, shown.options) == (
        call.token,
        "shop",
        "Which tea?",
        [],
    )
    assert [(field.name, field.kind, field.required) for field in shown.fields] == [
        *(("size", "choice", True), ("count", "integer", True), ("gift", "boolean", False))
    ]
    assert (shown.fields[1].least, shown.fields[1].most, shown.fields[2].default) == (1, 9, False)
    await asyncio.sleep(2.5)
    await answer(host, asked, "accept", **LARGE)
    assert text_of(await host.result(call)) == "2 large tea, gift True"
    for number, action in enumerate(("decline", "cancel"), 2):
        call = await begin(host, tool, item="tea")
        asked, _ = await question(host, number)
        await answer(host, asked, action)
        assert text_of(await host.result(call)) == f"no tea: {action}"
    call = await begin(host, tool, item="tea", question_s=0)
    assert text_of(await host.result(call)) == "no tea: cancel"
    assert len(await questions(host, 3)) == 3


async def test_questions_over_http_belong_to_their_calls(host: Host, program: Program) -> None:
    port = free_port()
    program.start(str(port))
    put(host, shop={"url": f"http://127.0.0.1:{port}/mcp"})
    await host.started()
    await until_offered(host, "mcp__shop__order")
    calls = {item: await begin(host, "order", item=item) for item in ("tea", "milk")}
    for asked in await questions(host, 2):
        assert asked.asked is not None
        item = asked.asked.question.removeprefix("Which ").rstrip("?")
        assert asked.call_id == calls[item].call_id
        await answer(host, asked, "accept", size="small", count=1)
    for item, call in calls.items():
        assert text_of(await host.result(call)) == f"1 small {item}, gift False"


async def test_a_question_of_an_old_server_is_never_put_to_another_session(
    host: Host, program: Program
) -> None:
    put(host, shop=stdio(program, env={"JOURNAL": str(program.journal), "OLD": "1"}))
    await host.started()
    await until_offered(host, "mcp__shop__old_order")
    first = await begin(host, "old_order", item="tea")
    await questions(host, 1)  # no other call runs: it is this one's
    second = await begin(host, "old_order", item="milk")
    assert text_of(await host.result(second)) == "no milk: cancel"  # whose it is cannot be told
    third = await begin(host, "old_order", item="milk")
    asked, shown = await question(host, 2)
    assert (asked.call_id, shown.question) == (third.call_id, "Which milk?")
    assert len(pids(program)) == 2  # a connection of its own
    await answer(host, asked, "accept", size="small", count=3)
    assert text_of(await host.result(third)) == "3 small milk, gift False"
    [asked] = [each for each in await questions(host, 2) if each.call_id == first.call_id]
    await answer(host, asked, "accept", size="small", count=1)
    assert text_of(await host.result(first)) == "1 small tea, gift False"
    await until(lambda: len(pids(program)) == 1, "the second server is ended with its call")


async def test_secrets_and_addresses_inside_are_not_asked_for(host: Host, program: Program) -> None:
    put(host, shop=stdio(program, env={"JOURNAL": str(program.journal), "OLD": "1"}))
    await host.started()
    await until_offered(host, "mcp__shop__login")
    assert text_of(await host.result(await begin(host, "login"))) == "decline"
    assert any("'password' is a secret" in each for each in await warnings(host.bus))
    for url in ("http://10.0.0.1/", "https://you:me@example.org/", "javascript:alert(1)", "https://a b/"):
        assert text_of(await host.result(await begin(host, "visit", url=url))) == "decline", url
    call = await begin(host, "visit", url="https://example.org/sign-in")
    asked, shown = await question(host)
    assert (shown.url, shown.fields, shown.server) == ("https://example.org/sign-in", [], "shop")
    await answer(host, asked, "accept")
    assert text_of(await host.result(call)) == "accept"


@pytest.mark.parametrize("era", ["new", "old"])
async def test_pages_that_a_server_wants_opened_first_are_shown_and_the_call_is_repeated_once(
    host: Host, program: Program, era: str
) -> None:
    env = {"JOURNAL": str(program.journal), **({"OLD": "1"} if era == "old" else {})}
    put(host, shop=stdio(program, env=env))
    await host.started()
    await until_offered(host, "mcp__shop__sign_in_first")
    pages = ["https://one.example.org/in", "https://two.example.org/in"]
    refusal = "The MCP server shop refused: This needs an authorization."
    for urls in ([], ["http://10.0.0.1/"], ["https://example.org/"] * 200):
        outcome = await host.result(await begin(host, "sign_in_first", urls=urls))
        assert text_of(outcome) == refusal
    declined = await begin(host, "sign_in_first", urls=[*pages, "https://three.example.org/"])
    asked, shown = await question(host)
    assert (shown.url, shown.question, shown.server) == (pages[0], "Sign in at shop 0.", "shop")
    await answer(host, asked, "decline")
    assert text_of(await host.result(declined)) == refusal
    before = did(program, "sign_in_first")
    call = await begin(host, "sign_in_first", urls=pages, timeout_s=2)
    for number, url in enumerate(pages, 2):
        asked, shown = await question(host, number)
        assert shown.url == url
        await asyncio.sleep(1.5)  # the time of the call stands still
        await answer(host, asked, "accept")
    assert text_of(await host.result(call)) == "signed in"
    assert did(program, "sign_in_first") == before + 2


async def test_a_call_whose_executor_is_killed_while_it_asks_is_unknown_and_starts_once(
    host: Host, program: Program
) -> None:
    put(host, shop=stdio(program))
    await host.started()
    await until_offered(host, "mcp__shop__order")
    call = await begin(host, "order", item="tea")
    asked, _ = await question(host)
    host.kill()
    await answer(host, asked, "accept", **LARGE)
    await host.started()
    outcome = await host.result(call)
    assert (outcome.status, did(program, "order tea")) == ("unknown", 0)


@pytest.mark.parametrize("tool", ["order", "old_order"])
async def test_a_question_ends_with_its_server(host: Host, program: Program, tool: str) -> None:
    env = {"JOURNAL": str(program.journal), **({"OLD": "1"} if tool == "old_order" else {})}
    put(host, shop=stdio(program, env=env))
    await host.started()
    await until_offered(host, "mcp__shop__order")
    call = await begin(host, tool, item="tea")
    asked, _ = await question(host)
    for pid in pids(program):
        os.kill(pid, signal.SIGKILL)
    outcome = await host.result(call)  # nobody has to answer for that
    assert outcome.status == "unknown"
    assert "onnection closed" in text_of(outcome)
    if tool == "order":  # a question of the other may be closed with its call alone
        withdrawn = (await questions(host, 2))[-1]
        assert (withdrawn.withdrawn, withdrawn.token) == (True, asked.token)
    call = await begin(host, tool, item="tea")
    await answer(host, await question_of(host, call), "decline")
    assert text_of(await host.result(call)) == "no tea: decline"


async def test_an_executor_that_stops_while_it_asks_lets_the_call_come_to_an_end(
    host: Host, program: Program
) -> None:
    put(host, shop=stdio(program))
    await host.started()
    await until_offered(host, "mcp__shop__order")
    call = await begin(host, "order", item="tea")
    await question(host)
    assert host.terminate() == 0
    assert text_of(await host.result(call)) == "no tea: cancel"
