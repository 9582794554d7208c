"""Clients that two generators make of the gateway's OpenAPI document: they pass type checks, and they run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.clients.stack import JAVASCRIPT, Stack

PYTHON: Final = Path(__file__).parent / "generated_client.py"
SAID: Final = ["user", "assistant", "end waiting_approval", "result ok", "assistant", "end completed"]
REFUSED: Final = [[404, "not_found", None], [400, "invalid_input", "title"]]


def run(folder: Path, *command: str | Path, **environ: str) -> str:
    """What a program prints."""
    done = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


def document(stack: Stack, folder: Path) -> Path:
    """The document of the running gateway, in a file."""
    headers = {"Authorization": f"Bearer {stack.up.token}"}
    answer = httpx.get(f"{stack.up.base_url}/openapi.json", headers=headers, timeout=20)
    path = folder / "openapi.json"
    path.write_bytes(answer.raise_for_status().content)
    return path


def test_python_client_is_made_without_a_warning_and_drives_a_session(stack: Stack, tmp_path: Path) -> None:
    pytest.importorskip("openapi_python_client")
    (tmp_path / "config.yml").write_text("literal_enums: true\npost_hooks: []\n")
    said = run(
        tmp_path,
        *(sys.executable, "-m", "openapi_python_client", "generate", "--path", document(stack, tmp_path)),
        *("--output-path", "fairlead_api", "--meta", "none", "--config", "config.yml", "--fail-on-warning"),
    )
    assert "warning" not in said.lower()
    (tmp_path / "program.py").write_bytes(PYTHON.read_bytes())
    run(
        tmp_path,
        *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir=.mypy_cache"),
        *("--config-file=", "program.py"),
    )
    environ = {"FAIRLEAD_URL": stack.up.base_url, "FAIRLEAD_TOKEN": stack.up.token}
    found: dict[str, Any] = json.loads(run(tmp_path, sys.executable, "program.py", **environ))
    assert (found["tool"], found["entries"], found["refused"]) == ("bash", SAID, REFUSED)
    assert found["events"][-1] == "agent_end completed"
    assert {"MessageEntry", "ApprovalRequestEntry", "ApprovalEntry", "RunEndEntry"} <= set(found["events"])


def test_typescript_client_is_checked_and_drives_a_session(stack: Stack, tmp_path: Path) -> None:
    node, packages = shutil.which("node"), JAVASCRIPT / "node_modules"
    if node is None or not (packages / "openapi-typescript").is_dir():
        pytest.skip("no Node, or `npm ci` was not run in tests/clients/js")
    (tmp_path / "node_modules").symlink_to(packages)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "program.ts").write_bytes((JAVASCRIPT / "generated_client.ts").read_bytes())
    run(
        tmp_path,
        *(node, packages / "openapi-typescript/bin/cli.js", document(stack, tmp_path), "-o", "api.d.ts"),
        "--default-non-nullable=false",
    )
    run(
        tmp_path,
        *(node, packages / "typescript/bin/tsc", "--strict", "--module", "nodenext", "--target", "es2022"),
        *("--lib", "es2022,dom,dom.asynciterable", "program.ts"),
    )
    environ = {"FAIRLEAD_URL": stack.up.base_url, "FAIRLEAD_TOKEN": stack.up.token}
    found: dict[str, Any] = json.loads(run(tmp_path, node, "program.js", **environ))
    assert (found["same"], found["tool"], found["entries"]) == (True, "bash", SAID)
    assert [each[:2] for each in found["refused"]] == [each[:2] for each in REFUSED]
    assert found["events"][-1] == "agent_end completed"
    assert {"entry message", "entry approval_request", "entry approval", "entry run_end"} <= set(
        found["events"]
    )
