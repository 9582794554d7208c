"""`llm`, the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.stack import Stack

pytest.importorskip("llm")

WEATHER = '''
def weather(city: str) -> str:
    """How warm it is."""
    return f"21 C in {city}"
'''


@pytest.fixture(scope="module")
def folder(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("llm")
    model = {
        "model_id": "fairlead",
        "model_name": "main",
        "api_base": stack.openai_url,
        "api_key_name": "fairlead",
        "supports_tools": True,
        "supports_schema": True,
    }
    (made / "extra-openai-models.yaml").write_text(json.dumps([model]))  # JSON is YAML
    (made / "keys.json").write_text(json.dumps({"fairlead": stack.up.token}))
    return made


def llm(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llm", "prompt", "-m", "fairlead", *arguments],
        env={**os.environ, "LLM_USER_PATH": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_functions_schemas_and_a_conversation_that_goes_on(stack: Stack, folder: Path) -> None:
    asked = 'op=LLMTOOL steps=1 tool=weather args={"city":"Bonn"} answer="It is warm."'
    assert llm(folder, "--functions", WEATHER, asked) == "It is warm."
    shape = "name, degrees int"
    formed = llm(folder, "--schema", shape, 'op=LLMSCHEMA answer={"name":"Bonn","degrees":21}')
    assert json.loads(formed) == {"name": "Bonn", "degrees": 21}
    llm(folder, "-s", "Be brief.", "op=LLMONE")
    assert llm(folder, "-c", "op=LLMTWO") == "done LLMTWO"
    page = stack.up.api("GET", "/api/sessions?source=api&limit=1000")
    before = {each["id"]: each["preview"] for each in page["sessions"]}
    assert [text.strip() for text in before.values()].count("done LLMTWO") == 1
    assert "done LLMONE" not in [text.strip() for text in before.values()]  # it went on in its session
