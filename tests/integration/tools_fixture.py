"""Executors as processes on a real nats-server, and what a test asks them and sees of them."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.chunked_requests import write_parts
from fairlead_common.bus.objects import Objects
from fairlead_common.errors import NotFoundError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import ToolOutcome
from fairlead_common.protocol.ids import new_id
from fairlead_common.protocol.messages import ToolCall, ToolResult, WorkspaceQuery
from fairlead_common.protocol.workspace_answers import RunFilesAnswer
from tests.support.nats_server import NatsServer
from tests.support.outcomes import text_of
from tests.support.processes import is_alive
from tests.support.waiting import until

HOST = "here"
WAIT_S = 40.0  # has room for a busy machine

_OF_THE_CALL = (
    "workspace",
    "workspace_kind",
    "repository",
    "timeout_s",
    "sandbox",
    "session",
    "scope",
    "access",
    "remote",
    "outside",
    "turn_seq",
    "question_s",
    "files",
)


class Host:
    """One machine: a home folder, its executors, and the bus as the agent sees it."""

    starts = "process"

    def __init__(self, folder: Path, bus: Bus, server: NatsServer) -> None:
        self.bus = bus
        self.server = server
        self.home = folder / "home"
        self.workspace = folder / "workspace"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True)
        self.environ: dict[str, str] = {}

    @property
    def state(self) -> Path:
        return self.home / "tools" / HOST

    def start(self, name: str = "e1", **environ: str) -> subprocess.Popen[bytes]:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "FAIRLEAD_NATS_URL": self.server.url,
            "FAIRLEAD_HOME": str(self.home),
            "FAIRLEAD_HOST": HOST,
            "FAIRLEAD_EXECUTOR": name,
            "FAIRLEAD_WORKSPACE": str(self.workspace),
            "SECRET": "do-not-tell",
            **self.environ,
            **environ,
        }
        with (self.logs / name).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "fairlead_tools.main"], env=env, stdout=log, stderr=log
            )
        self.processes[name] = process
        return process

    async def started(self, name: str = "e1", **environ: str) -> subprocess.Popen[bytes]:
        before = self.log(name).count("service_ready")
        process = self.start(name, **environ)

        def is_over() -> bool:
            return self.log(name).count("service_ready") > before or process.poll() is not None

        await until(is_over, "it is ready")
        assert process.poll() is None, self.log(name)
        return process

    def log(self, name: str) -> str:
        path = self.logs / name
        return path.read_text() if path.exists() else ""

    def kill(self, name: str = "e1") -> None:
        self.processes[name].kill()
        self.processes[name].wait(timeout=WAIT_S)

    def terminate(self, name: str = "e1") -> int:
        self.processes[name].send_signal(signal.SIGTERM)
        return self.processes[name].wait(timeout=WAIT_S)

    def runners(self) -> list[int]:
        found = []
        for lock in self.state.glob("runners/*/lock"):
            with contextlib.suppress(FileNotFoundError, ValueError):  # of one that is removed meanwhile
                found.append(int(lock.read_text()))
        return [pid for pid in found if is_alive(pid)]

    async def ask(self, tool: str, **more: object) -> ToolCall:
        """Publish a request as the agent does; arguments of the tool and fields of the call in one."""
        fields: dict[str, object] = {
            "call_id": new_id(),
            "session": "chat",
            "workspace": "",
            "token": new_id(),
            "name": tool,
        }
        fields |= {key: more.pop(key) for key in _OF_THE_CALL if key in more}
        call = msgspec.convert({**fields, "arguments": more}, ToolCall)
        data = msgspec.json.encode(call)
        payload, headers = await Objects(self.bus).pack(data)
        if headers:
            headers[s.H_PARTS] = await write_parts(self.bus, HOST, call.call_id, data)
        await self.bus.create(s.TOOLS, s.tool_request(HOST, call.call_id), payload, headers)
        return call

    async def result(self, call: ToolCall, within_s: float = WAIT_S) -> ToolOutcome:
        subject = s.mail(call.session, "result", call.call_id)
        try:
            async with asyncio.timeout(within_s):
                while (record := await self.bus.last(s.SESSIONS, subject)) is None:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            logs = "\n".join(self.log(name)[-3000:] for name in self.processes)
            raise AssertionError(f"no result within {within_s} s\n{logs}") from None
        payload = await Objects(self.bus).unpack(record.data, record.headers)
        result = msgspec.json.decode(payload, type=ToolResult)
        assert (result.call_id, result.token) == (call.call_id, call.token)
        return result.outcome

    async def run(self, tool: str, **more: object) -> ToolOutcome:
        return await self.result(await self.ask(tool, **more))

    async def run_files(self, *paths: str) -> RunFilesAnswer:
        """What is answered about files of the workspace when a person is about to be asked."""
        query = msgspec.json.encode(WorkspaceQuery(workspace=str(self.workspace), run_files=list(paths)))
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    reply = await self.bus.request(s.workspace_instructions(HOST), query, timeout_s=WAIT_S)
                except NotFoundError:  # it is ready a moment before it listens
                    await asyncio.sleep(0.05)
                else:
                    return msgspec.json.decode(reply.data, type=RunFilesAnswer)

    async def claim(self, call: ToolCall, **claim: str) -> None:
        await self.bus.create(s.TOOLS, s.tool_claim(HOST, call.call_id), json.dumps(claim).encode())

    async def unsettled(self) -> int:
        """Requests that were not acknowledged, delivered or not."""
        info = await self.bus.api(f"CONSUMER.INFO.{s.TOOLS}.{s.tools_consumer(HOST)}")
        return int(str(info["num_ack_pending"])) + int(str(info["num_pending"]))

    async def settled(self, within_s: float = WAIT_S) -> None:
        async with asyncio.timeout(within_s):
            while await self.unsettled():
                await asyncio.sleep(0.02)

    async def deliver_all_again(self) -> None:
        """As when all acknowledgements were lost."""
        await self.bus.api(f"CONSUMER.DELETE.{s.TOOLS}.{s.tools_consumer(HOST)}")

    async def file(self, name: str) -> str:
        path = self.workspace / name
        await until(lambda: path.exists() and path.read_text(), f"{name} is written")
        return path.read_text()

    def lines(self, name: str) -> list[str]:
        path = self.workspace / name
        return path.read_text().splitlines() if path.exists() else []

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(timeout=WAIT_S)
        for pid in self.runners():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


# Runs until the file `go` is there. `ran` gets a line each time that it is started.
WAITING = "echo x >> ran; until [ -e go ]; do sleep 0.02; done; echo end"


class SandboxedHost:
    """A host whose calls ask for a sandbox of this kind."""

    kind: str

    def __init__(self, host: Host) -> None:
        self.host = host

    async def ask(self, tool: str, **more: object) -> ToolCall:
        """Publish a request, as `Host.ask`."""
        return await self.host.ask(tool, **{"sandbox": self.kind, "scope": "chat", **more})

    async def run(self, tool: str, **more: object) -> str:
        """Status and text of the result."""
        outcome = await self.host.result(await self.ask(tool, **more))
        return f"{outcome.status}: {text_of(outcome)}"

    async def begun(self) -> ToolCall:
        """A call whose command has begun; it ends when `go` is there."""
        call = await self.ask("bash", command=WAITING)
        await self.host.file("ran")
        return call


async def assert_only_the_allowed_script_runs(sandboxed: SandboxedHost) -> None:
    """A call starts while its script is what its host said when a person was asked, and not afterwards."""
    host = sandboxed.host
    host.workspace.mkdir(exist_ok=True)
    script = host.workspace / "x.sh"
    script.write_text("echo allowed\n")
    files = (await host.run_files("x.sh")).digests
    assert await sandboxed.run("bash", command="bash x.sh", files=files) == "ok: allowed\n"
    script.write_text("echo other\n")
    assert "error: Not started: x.sh changed" in await sandboxed.run("bash", command="bash x.sh", files=files)
    script.write_text("echo allowed\n")
    assert await sandboxed.run("bash", command="bash x.sh", files=files) == "ok: allowed\n"
