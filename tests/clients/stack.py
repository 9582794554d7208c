"""The running Fairlead that clients as they are published talk to, and how their programs are run."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.scripted_model import ModelProcess

JAVASCRIPT: Final = Path(__file__).parent / "js"
AGENT: Final = "main"  # may do all
CAREFUL: Final = "careful"  # asks for approvals


class Stack:
    """`fairlead up` with two agents, a scripted model, and a ledger for each test that counts commands.

    Names in model scripts (`op=...`) must differ between all tests: the stack is shared.
    """

    starts = "stack"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.model = ModelProcess(folder / "model.jsonl", fsync=False)
        self.up: FairleadUp

    def __enter__(self) -> "Stack":
        self.model.__enter__()
        environ = {
            "FAIRLEAD_MODEL": "openai/scripted",
            "OPENAI_BASE_URL": self.model.url,
            "OPENAI_API_KEY": "x",
            "FAIRLEAD_TOOLS_CAPACITY": "16",  # commands of several clients wait for each other
        }
        sets = [f"agents.{AGENT}.mode=allow-all", f"agents.{CAREFUL}.mode=ask"]
        self.up = FairleadUp(self._folder / "home", sets=sets, environ=environ)
        try:
            self.up.__enter__()
        except BaseException:
            self.model.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.up.__exit__(kind, error, trace)
        finally:
            self.model.__exit__(kind, error, trace)

    @property
    def openai_url(self) -> str:
        """Base URL for OpenAI's clients."""
        return f"{self.up.base_url}/v1"

    def ledger(self, name: str) -> Path:
        """A file that commands of one test append a line to when they start."""
        return self._folder / f"{name}.ledger"

    def run_javascript(self, name: str, *arguments: str, timeout_s: float = 60.0) -> Any:
        """What the program `js/<name>` prints, as one JSON value.

        FAIRLEAD_URL and OPENAI_BASE_URL name the gateway, FAIRLEAD_TOKEN and OPENAI_API_KEY hold the token.
        Without Node or the packages of `js/package-lock.json` the test is skipped.
        """
        node = shutil.which("node")
        if node is None or not (JAVASCRIPT / "node_modules").is_dir():
            pytest.skip("no Node, or `npm ci` was not run in tests/clients/js")
        environ = {
            **os.environ,
            "FAIRLEAD_URL": self.up.base_url,
            "FAIRLEAD_TOKEN": self.up.token,
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": self.up.token,
        }
        done = subprocess.run(
            [node, str(JAVASCRIPT / name), *arguments],
            env=environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)
