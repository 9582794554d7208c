"""Open WebUI as it is on PyPI, in front of a whole Fairlead: a chat is one session, its side tasks are none.

Off unless `FAIRLEAD_TEST_OPEN_WEBUI` is set: to the folder to install it in (1.1 GB), or `1` for one that is
removed again. `make check` installs it in .tools/open-webui, beside the other tests, and sets
`FAIRLEAD_TEST_OPEN_WEBUI_COMES`: these tests wait for it, and are left out where it cannot be installed.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.open_webui import OpenWebUI, install
from tests.support.scripted_model import ModelProcess
from tests.support.waiting import eventually

WANTED = os.environ.get("FAIRLEAD_TEST_OPEN_WEBUI", "")
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not WANTED, reason="FAIRLEAD_TEST_OPEN_WEBUI is not set: it installs 1.1 GB"),
]


class Served(NamedTuple):
    """A Fairlead and the Open WebUI in front of it.

    Fields:
        names_the_chat: Open WebUI tells which chat and user a request is of.
    """

    up: FairleadUp
    webui: OpenWebUI
    names_the_chat: bool


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("open-webui") if WANTED == "1" else Path(WANTED)
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    try:
        made = install(folder.absolute(), uv)
    except (OSError, subprocess.SubprocessError) as problem:
        if not os.environ.get("FAIRLEAD_TEST_OPEN_WEBUI_COMES"):
            raise
        pytest.skip(f"Open WebUI cannot be installed: {problem}")
    yield made
    if WANTED == "1":
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", params=[True, False], ids=["chat-named", "chat-not-named"])
def served(
    request: pytest.FixtureRequest, venv: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    with ModelProcess(folder / "model.jsonl", fsync=False) as model:
        environ = {"FAIRLEAD_MODEL": "openai/scripted", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "x"}
        sets = ["agents.main.mode=ask", "agents.free.mode=allow-all"]
        settings = {
            "ENABLE_FORWARD_USER_INFO_HEADERS": str(request.param),
            "DEFAULT_MODEL_PARAMS": '{"function_calling": "legacy"}',
        }
        with (
            FairleadUp(folder / "home", sets=sets, environ=environ) as up,
            OpenWebUI(venv, folder / "webui", f"{up.base_url}/v1", up.token, settings) as webui,
        ):
            yield Served(up, webui, request.param)


def sessions(up: FairleadUp) -> set[str]:
    return {each["id"] for each in up.api("GET", "/api/sessions?source=all")["sessions"]}


def messages(up: FairleadUp, session: str, role: str) -> list[Any]:
    entries = up.entries(session)
    return [
        each["message"] for each in entries if each["type"] == "message" and each["message"]["role"] == role
    ]


def outcomes(up: FairleadUp, session: str) -> list[str]:
    return [each["outcome"] for each in up.entries(session) if each["type"] == "run_end"]


def test_four_turns_of_a_chat_are_one_session_and_side_tasks_run_no_tool(
    served: Served, tmp_path: Path
) -> None:
    up, webui, names_the_chat = served
    ledger = tmp_path / "ledger"
    assert sorted(webui.models()) == ["free", "main"]
    chat = webui.turn("say 3 tokens id=ONE")
    for number in (2, 3):
        chat = webui.turn(f"op=T{number} steps=1 tool=ls path=.", chat)
    chat = webui.turn(f'op=T4 steps=1 run="echo ran >> {ledger}"', chat)
    [session] = sessions(up)
    assert (session == chat["id"]) == names_the_chat
    said = messages(up, session, "user")
    assert len(said) == 4
    assert not any("### Task" in str(message) for message in said)
    # The last turn waits for a person; the tasks that Open WebUI sent beside it do not.
    approvals = up.api("GET", "/api/approvals")["approvals"]
    assert [(each["session"], each["tool"]) for each in approvals] == [(session, "bash")]
    assert len(messages(up, session, "tool_result")) == 2
    assert not ledger.exists()


def test_a_command_starts_once_though_the_gateway_is_killed_while_it_runs(
    served: Served, tmp_path: Path
) -> None:
    up, webui, _ = served
    before = sessions(up)
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    command = f"echo ran >> {ledger}; until [ -e {go} ]; do sleep 0.05; done"
    chat = webui.turn("say 3 tokens id=FREE", model="free")
    [session] = sessions(up) - before
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(webui.turn, f'op=K1 steps=1 run="{command}"', chat, model="free")
        eventually(ledger.exists, "the command starts")
        up.kill("gateway")
        up.wait_restarted("gateway", timeout_s=60)
        up.wait_ready(60)
        go.touch()
        history = asked.result(timeout=100)["chat"]["history"]
    # Open WebUI shows that its answer was cut off, and does not ask again by itself.
    assert "payload is not completed" in str(history["messages"][history["currentId"]]["error"])
    eventually(
        lambda: outcomes(up, session) == ["completed"] * 2,
        lambda: f"the run ends all the same: {outcomes(up, session)}",
    )
    assert [each["outcome"]["status"] for each in messages(up, session, "tool_result")] == ["ok"]
    answered = webui.turn("say 2 tokens id=AFTER", model="free")["chat"]["history"]
    assert answered["messages"][answered["currentId"]]["content"] == "word word"
    assert ledger.read_text() == "ran\n"
