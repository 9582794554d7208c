"""Executors that offer the tools of others, what they tell agents, and a journal of what those others did."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import ToolOutcome, ToolResultMessage
from fairlead_common.protocol.messages import ExecutorInfo, ToolSpec
from tests.integration.tools_fixture import HOST, WAIT_S, Host
from tests.support.agent_world import World, agent_service
from tests.support.nats_server import NatsServer
from tests.support.processes import is_alive
from tests.support.scripted_model import ScriptedModel

DOCUMENT = Path(__file__).parents[2] / "docs" / "tools.md"


def block(first_line: str) -> str:
    """The code block of docs/tools.md that begins with this line."""
    found = re.search(rf"```\w+\n({re.escape(first_line)}\n.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found, f"docs/tools.md has no block that begins with {first_line!r}"
    return found.group(1)


class Program:
    """A Python program of a stranger, as a process. It may write lines into `journal`."""

    starts = "process"

    def __init__(self, folder: Path, name: str, source: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.py"
        self.path.write_text(source)
        self.journal = folder / f"{name}.journal"
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str, **environ: str) -> "Program":
        env = {"PATH": os.environ["PATH"], "JOURNAL": str(self.journal), **environ}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(self.path), *arguments], env=env, stdout=log, stderr=log
            )
        return self

    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=WAIT_S)


async def heartbeat(bus: Bus, executor: str) -> ExecutorInfo | None:
    record = await Bucket(bus, s.BUCKET_EXECUTORS).get(f"{HOST}.{executor}")
    return None if record is None else msgspec.json.decode(record.data, type=ExecutorInfo)


async def offered(bus: Bus, executor: str = "e1") -> dict[str, ToolSpec]:
    """What the heartbeat of an executor tells agents now."""
    info = await heartbeat(bus, executor)
    return {} if info is None else {spec.name: spec for spec in info.tools}


async def warnings(bus: Bus, executor: str = "e1") -> list[str]:
    """What it tells people; waits for the first."""
    async with asyncio.timeout(WAIT_S):
        while (info := await heartbeat(bus, executor)) is None or not info.warnings:
            await asyncio.sleep(0.05)
    return info.warnings


async def until_offered(host: Host, *names: str, gone: bool = False, within_s: float = WAIT_S) -> ToolSpec:
    """The first of these tools, once agents are told of all (or of none) of them."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                found = await offered(host.bus)
                if found and all((name in found) != gone for name in names):
                    return found.get(names[0], next(iter(found.values())))
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {within_s} s: {names}\n{host.log('e1')[-3000:]}") from None


def settings(values: Mapping[str, object]) -> str:
    return msgspec.json.encode(values).decode()


async def asked_by_agent(
    host: Host,
    nats: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    prompt: str,
    **overrides: object,
) -> tuple[str, ToolOutcome]:
    """What a whole run of an agent comes to: its outcome, and what came of its one tool call."""
    model = await ScriptedModel(folder / "model.jsonl").start()
    monkeypatch.setenv("OPENAI_BASE_URL", model.url)
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    world = World(host.bus, model)
    async with agent_service(nats, monkeypatch, settings=dict(overrides)):
        await world.say("chat", prompt)
        end = await world.run_end("chat")
    await model.stop()
    [result] = [message for message in await world.messages("chat") if isinstance(message, ToolResultMessage)]
    return end.outcome, result.outcome


def stdio(program: Program, **more: object) -> dict[str, object]:
    return {
        "command": sys.executable,
        "args": [str(program.path)],
        "env": {"JOURNAL": str(program.journal)},
        **more,
    }


def put(host: Host, **servers: object) -> None:
    host.environ["FAIRLEAD_OVERRIDES"] = settings({"tools.mcp": servers})


def pids(program: Program) -> list[int]:
    """The servers that live, of all that ever started."""
    found = [int(line.split()[1]) for line in program.lines() if line.startswith("pid ")]
    return [pid for pid in found if is_alive(pid)]
