"""Open WebUI as it is on PyPI, in front of a whole Fairlead: a chat is one session, its side tasks are none.

Off unless `FAIRLEAD_TEST_OPEN_WEBUI` is set: to the folder to install it in (1.1 GB, minutes), or `1` for one
that is removed again.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.open_webui import OpenWebUI, install
from tests.support.scripted_model import ModelProcess

WANTED = os.environ.get("FAIRLEAD_TEST_OPEN_WEBUI", "")
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not WANTED, reason="FAIRLEAD_TEST_OPEN_WEBUI is not set: it installs 1.1 GB"),
]


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("open-webui") if WANTED == "1" else Path(WANTED)
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    yield install(folder, uv)
    if WANTED == "1":
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("names_the_chat", [True, False])
def test_four_turns_of_a_chat_are_one_session_and_side_tasks_run_no_tool(
    venv: Path, tmp_path: Path, names_the_chat: bool
) -> None:
    ledger = tmp_path / "ledger"
    with ModelProcess(tmp_path / "model.jsonl", fsync=False) as model:
        environ = {"FAIRLEAD_MODEL": "openai/scripted", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "x"}
        settings = {
            "ENABLE_FORWARD_USER_INFO_HEADERS": str(names_the_chat),
            "DEFAULT_MODEL_PARAMS": '{"function_calling": "legacy"}',
        }
        with (
            FairleadUp(tmp_path / "home", sets=["agents.main.mode=ask"], environ=environ) as up,
            OpenWebUI(venv, tmp_path / "webui", f"{up.base_url}/v1", up.token, settings) as webui,
        ):
            assert webui.models() == ["main"]
            chat = webui.turn("say 3 tokens id=ONE")
            for number in (2, 3):
                chat = webui.turn(f"op=T{number} steps=1 tool=ls path=.", chat)
            chat = webui.turn(f'op=T4 steps=1 run="echo ran >> {ledger}"', chat)
            [session] = [each["id"] for each in up.api("GET", "/api/sessions?source=all")["sessions"]]
            assert (session == chat["id"]) == names_the_chat
            entries = up.entries(session)
            said = [
                each["message"]
                for each in entries
                if each["type"] == "message" and each["message"]["role"] == "user"
            ]
            assert len(said) == 4
            assert not any("### Task" in str(message) for message in said)
            # The last turn waits for a person; the tasks that Open WebUI sent beside it do not.
            approvals = up.api("GET", "/api/approvals")["approvals"]
            assert [(each["session"], each["tool"]) for each in approvals] == [(session, "bash")]
            ran = [
                each
                for each in entries
                if each["type"] == "message" and each["message"]["role"] == "tool_result"
            ]
            assert len(ran) == 2
            assert not ledger.exists()
