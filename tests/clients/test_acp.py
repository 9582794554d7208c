"""Editors: the client side of the protocol's own SDK, which starts `fairlead acp`."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import acp
import pytest
import pytest_asyncio
from acp import schema

from tests.clients.acp_editor import Editor, editing
from tests.clients.stack import CAREFUL, Stack
from tests.support.png import png

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editor(stack: Stack) -> AsyncIterator[Editor]:
    """An editor whose agent may do all."""
    one = Editor()
    async with editing(stack, one):
        yield one


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def careful(stack: Stack) -> AsyncIterator[Editor]:
    """An editor whose agent asks for approvals. A test says how they are decided."""
    one = Editor()
    async with editing(stack, one, "--agent", CAREFUL):
        yield one


def messages(stack: Stack, session: str, role: str) -> list[dict[str, Any]]:
    """The messages of a session's log with this role."""
    found = [entry["message"] for entry in stack.up.entries(session) if entry["type"] == "message"]
    return [message for message in found if message["role"] == role]


def result(stack: Stack, session: str, number: int) -> str:
    """What the tool call of this number gave to the model."""
    return str(messages(stack, session, "tool_result")[number]["outcome"]["content"][0]["text"])


async def test_editor_sees_words_calls_changes_and_limits_of_a_turn(editor: Editor, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    edits = '{"path":"a.txt","edits":[{"old_text":"two","new_text":"TWO"}]}'
    server = schema.McpServerStdio(name="files", command="true", args=[], env=[])
    session = await editor.new(tmp_path, mcp_servers=[server])
    answer = await editor.say(session, 'op=ACP1 steps=1 run="echo out-1; pwd" answer="all done"')
    assert answer.stop_reason == "end_turn"
    assert editor.said(session) == "all done"
    assert editor.heard(session) == "", "the editor shows its own prompts"
    assert "MCP servers of the editor are not used: files" in editor.notes(session)
    call = editor.call(session)
    assert (call["kind"], call["status"]) == ("execute", "completed")
    assert call["title"] == "`echo out-1; pwd`"
    assert f"out-1\n{tmp_path}" in call["content"][0]["content"]["text"]
    assert answer.usage.total_tokens > 0

    answer = await editor.say(session, f'op=ACP2 steps=1 tool=edit args={edits} answer="changed"')
    assert (tmp_path / "a.txt").read_text() == "one\nTWO\nthree\n"
    call = editor.call(session, 1)
    assert (call["kind"], call["status"]) == ("edit", "completed")
    assert call["locations"] == [{"path": str(tmp_path / "a.txt"), "line": 1}]
    (diff,) = call["content"]
    assert (diff["type"], diff["path"]) == ("diff", str(tmp_path / "a.txt"))
    assert (diff["old_text"], diff["new_text"]) == ("one\ntwo\nthree\n", "one\nTWO\nthree\n")

    await editor.say(session, "/undo")
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert "Restored 1 file:\n- a.txt: restored" in editor.said(session)

    steps = '{"steps":[{"text":"look","status":"done"},{"text":"act","status":"in_progress"}]}'
    await editor.say(session, f'op=ACP3 steps=1 tool=plan args={steps} answer="planned"')
    (plan,) = editor.of(session, "plan")
    assert [(each.content, each.status) for each in plan.entries] == [
        ("look", "completed"),
        ("act", "in_progress"),
    ]
    answer = await editor.say(session, "say 5 tokens length=1 id=ACP4")
    assert answer.stop_reason == "max_tokens"
    with pytest.raises(acp.RequestError) as failed:
        await editor.say(session, "say 5 tokens fail=400x9 id=ACP5")
    assert dict(failed.value.data or {})["outcome"] == "failed"


async def test_approvals_are_requests_for_permission(careful: Editor, tmp_path: Path) -> None:
    careful.decide("once", "session", "deny")
    content = '{"path":"b.txt","content":"new"}'
    session = await careful.new(tmp_path)
    await careful.say(session, f'op=ACPA1 steps=1 tool=write args={content} answer="written"')
    assert (tmp_path / "b.txt").read_text() == "new"
    call, options = careful.asked[0]
    assert (call.tool_call_id, call.kind) == (careful.call(session)["tool_call_id"], "edit")
    (change, why) = call.content or []
    assert isinstance(change, schema.FileEditToolCallContent)
    assert (change.path, change.new_text) == (str(tmp_path / "b.txt"), "new")
    assert isinstance(why, schema.ContentToolCallContent)
    kinds = {option.option_id: option.kind for option in options}
    assert (kinds["once"], kinds["deny"]) == ("allow_once", "reject_once")
    assert kinds["session"] == "allow_always"

    await careful.say(session, 'op=ACPA2 steps=2 run="touch made" answer="twice"')
    assert len(careful.asked) == 2, "a grant for the session holds for the second call"
    assert (tmp_path / "made").exists()
    answer = await careful.say(session, 'op=ACPA3 steps=1 run="rm -r /nowhere-acp" answer="then not"')
    assert (answer.stop_reason, careful.call(session, 3)["status"]) == ("end_turn", "failed")


async def test_request_that_is_decided_elsewhere_is_taken_back(
    careful: Editor, stack: Stack, tmp_path: Path
) -> None:
    careful.decide()
    asked = len(careful.asked)
    session = await careful.new(tmp_path)
    turn = asyncio.ensure_future(careful.say(session, 'op=ACPE1 steps=1 run="touch x" answer="so be it"'))
    await careful.until(lambda: len(careful.asked) > asked)
    listed = f"/api/approvals?session={session}"
    waiting = (await careful.until(lambda: stack.up.api("GET", listed)["approvals"]))[0]
    body = {"decision": "once", "shown_hash": waiting["shown_hash"]}
    stack.up.api("POST", f"/api/approvals/{waiting['id']}", body)
    assert (await turn).stop_reason == "end_turn"
    requests = [m["id"] for m in careful.wire if m.get("method") == "session/request_permission"]
    taken_back = [m["params"] for m in careful.wire if m.get("method") == "$/cancel_request"]
    assert taken_back == [{"requestId": requests[-1]}]
    assert (tmp_path / "x").exists()


async def test_session_that_waits_is_asked_about_again_once_it_is_loaded(
    careful: Editor, tmp_path: Path
) -> None:
    careful.decide()
    asked = len(careful.asked)
    session = await careful.new(tmp_path)
    turn = asyncio.ensure_future(careful.say(session, 'op=ACPL1 steps=1 run="touch y" answer="at last"'))
    await careful.until(lambda: len(careful.asked) > asked)
    careful.decide("once")
    await careful.agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
    assert (await turn).stop_reason == "cancelled", "what followed it is followed anew"
    await careful.until(lambda: careful.said(session) == "at last")
    assert (tmp_path / "y").exists()
    assert careful.asked[-1][0].tool_call_id == careful.asked[-2][0].tool_call_id


async def test_cancel_stops_the_run_and_the_session_goes_on(editor: Editor, tmp_path: Path) -> None:
    session = await editor.new(tmp_path)
    turn = asyncio.ensure_future(editor.say(session, 'op=ACPC1 steps=1 run="echo begun; sleep 60"'))
    await editor.until(lambda: "begun" in str(editor.of(session, "tool_call_update")))
    await editor.agent.cancel(session_id=session)
    assert (await turn).stop_reason == "cancelled"
    assert editor.call(session)["status"] == "failed"
    assert (await editor.say(session, 'op=ACPC2 answer="again"')).stop_reason == "end_turn"
    assert editor.said(session).endswith("again")


async def test_pictures_and_files_of_the_editor_reach_the_model(
    editor: Editor, stack: Stack, tmp_path: Path
) -> None:
    picture = base64.b64encode(png(8, 8)).decode()
    session = await editor.new(tmp_path)
    await editor.say(
        session,
        'op=ACPP1 answer="seen" look at ',
        acp.resource_link_block("main.py", f"file://{tmp_path}/src/main.py"),
        acp.resource_block(acp.embedded_text_resource(f"file://{tmp_path}/notes.md", "of the editor")),
        acp.image_block(picture, "image/png"),
    )
    (said,) = messages(stack, session, "user")
    text = said["content"][0]["text"]
    assert text.startswith('op=ACPP1 answer="seen" look at [main.py](src/main.py)[notes.md](notes.md)')
    assert '<context uri="notes.md">\nof the editor\n</context>' in text
    assert [block["type"] for block in said["content"]] == ["text", "text", "image"]
    await editor.agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
    pictures = [c.content for c in editor.of(session, "user_message_chunk") if c.content.type == "image"]
    assert [(each.data, each.mime_type) for each in pictures] == [(picture, "image/png")]


async def test_run_goes_on_without_its_editor_and_another_one_loads_it(
    editor: Editor, stack: Stack, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    first = Editor()
    async with editing(stack, first) as process:
        session = await first.new(tmp_path)
        run = 'run="echo begun >> ledger; sleep 2; echo ended >> ledger"'
        turn = asyncio.ensure_future(first.say(session, f'op=ACPK1 steps=1 {run} answer="it went on"'))
        await first.until(ledger.exists)
        process.kill()
        with pytest.raises(ConnectionError):
            await turn
    await editor.agent.load_session(cwd=str(tmp_path), session_id=session, mcp_servers=[])
    assert "ACPK1" in editor.heard(session)
    await editor.until(lambda: "it went on" in editor.said(session))
    assert editor.said(session) == "it went on"
    assert len(editor.of(session, "tool_call")) == 1
    assert ledger.read_text() == "begun\nended\n"
    listed = await editor.agent.list_sessions(cwd=str(tmp_path))
    assert [each.session_id for each in listed.sessions] == [session]


async def test_killed_gateway_loses_and_doubles_nothing(editor: Editor, stack: Stack, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    session = await editor.new(tmp_path)
    run = 'run="echo begun >> ledger; sleep 1; echo ended >> ledger"'
    turn = asyncio.ensure_future(editor.say(session, f"op=ACPG1 steps=1 {run} say 40 tokens rate=20"))
    await editor.until(ledger.exists)
    stack.up.kill("gateway")
    await asyncio.to_thread(stack.up.wait_restarted, "gateway")
    await editor.until(lambda: "word" in editor.said(session))
    stack.up.kill("gateway")
    assert (await turn).stop_reason == "end_turn"
    assert editor.said(session).split() == ["word"] * 40
    assert len(editor.of(session, "tool_call")) == 1
    assert ledger.read_text() == "begun\nended\n"
    assert len(messages(stack, session, "user")) == 1
    stack.up.kill("gateway")
    answer = await editor.say(session, 'op=ACPG2 answer="still here"')  # its request meets no server
    assert answer.stop_reason == "end_turn"
    await asyncio.to_thread(stack.up.wait_restarted, "gateway")
    await asyncio.to_thread(stack.up.wait_ready)


async def test_questions_are_options_or_the_next_prompt(
    careful: Editor, stack: Stack, tmp_path: Path
) -> None:
    careful.decide("choice-1")
    session = await careful.new(tmp_path)
    await careful.say(session, f"op=ACPQ2 {CHOICE}")
    assert "Blue" in result(stack, session, 0)
    open_question = 'op=ACPQ3 steps=1 tool=ask_user args={"question":"Why?"} answer="I see"'
    assert (await careful.say(session, open_question)).stop_reason == "end_turn"
    assert careful.said(session).endswith("Why?")
    assert (await careful.say(session, "because of the rain")).stop_reason == "end_turn"
    assert careful.said(session).endswith("I see")
    assert "the rain" in result(stack, session, 1)
    assert len(messages(stack, session, "user")) == 2, "an answer is no prompt"


async def test_questions_are_forms_where_the_editor_has_them(stack: Stack, tmp_path: Path) -> None:
    editor = Editor(form={"answer": "Red"})
    forms = schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())
    async with editing(stack, editor, capabilities=schema.ClientCapabilities(elicitation=forms)):
        session = await editor.new(tmp_path)
        await editor.say(session, f"op=ACPQ1 {CHOICE}")
        assert "Red" in result(stack, session, 0)
        ((asked, form),) = editor.forms
        assert asked == "Which?"
        choices = form.requested_schema.properties["answer"].one_of
        assert [each.const for each in choices] == ["Red", "Blue"]


async def test_settings_of_a_session_are_modes_and_options(
    editor: Editor, stack: Stack, tmp_path: Path
) -> None:
    made = await editor.agent.new_session(cwd=str(tmp_path), mcp_servers=[])
    session = made.session_id
    assert [mode.id for mode in made.modes.available_modes] == ["safe", "ask", "allow-all"]
    assert made.modes.current_mode_id == "allow-all"
    assert chosen(made) == {
        "mode": "allow-all",
        "model": "openai/scripted",
        "thinking": "default",
        "work_mode": "default",
    }
    await editor.agent.set_session_mode(session_id=session, mode_id="safe")
    await editor.until(lambda: editor.of(session, "current_mode_update"))
    changed = await editor.agent.set_config_option(config_id="thinking", session_id=session, value="high")
    assert chosen(changed)["thinking"] == "high"
    await editor.until(lambda: stack.up.api("GET", f"/api/sessions/{session}")["thinking"] == "high")
    assert stack.up.api("GET", f"/api/sessions/{session}")["mode"] == "safe"
    with pytest.raises(acp.RequestError, match="configId: must be one of"):
        await editor.agent.set_config_option(config_id="x", session_id=session, value="y")
    commands = await editor.until(lambda: editor.of(session, "available_commands_update"))
    assert [each.name for each in commands[0].available_commands] == ["compact", "undo"]
    forked = await editor.agent.fork_session(session_id=session, cwd=str(tmp_path))
    assert forked.modes.current_mode_id == "safe"
    resumed = await editor.agent.resume_session(session_id=session, cwd=str(tmp_path))
    assert resumed.modes.current_mode_id == "safe"


async def test_error_says_what_to_do_where_fairlead_cannot_be_used(stack: Stack, tmp_path: Path) -> None:
    editor = Editor()
    async with editing(stack, editor, environ={"FAIRLEAD_URL": "http://127.0.0.1:9"}):
        with pytest.raises(acp.RequestError, match="Start Fairlead with `fairlead up`"):
            await editor.new(tmp_path)
    async with editing(stack, editor, environ={"FAIRLEAD_HOST": "elsewhere"}):
        with pytest.raises(acp.RequestError, match="--workspace agent"):
            await editor.new(tmp_path)


async def test_session_works_where_it_began_and_says_so(editor: Editor, stack: Stack, tmp_path: Path) -> None:
    agents = Editor()
    async with editing(stack, agents, "--workspace", "agent", environ={"FAIRLEAD_HOST": "elsewhere"}):
        session = await agents.new(tmp_path)
        await agents.say(session, 'op=ACPW1 steps=1 run="pwd" answer="here"')
        assert str(stack.up.workspace) in result(stack, session, 0)
    await editor.agent.resume_session(session_id=session, cwd=str(tmp_path))
    await editor.say(session, 'op=ACPW2 answer="and there"')
    folder = f"This session works in the folder of its agent, not in {tmp_path}."
    assert editor.said(session) == f"**Note:** {folder}\n\nand there"


def chosen(answer: Any) -> dict[str, str]:
    """What is chosen of each option."""
    return {option.id: option.current_value for option in answer.config_options}


CHOICE = (
    'steps=1 tool=ask_user args={"question":"Which?","options":[{"label":"Red"},{"label":"Blue"}]} '
    'answer="thanks"'
)
