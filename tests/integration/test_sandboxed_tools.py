"""The runner's tools within the boundaries that sandboxes draw around them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator

import pytest

from tests.integration.tools_fixture import Host
from tests.support import boxes, containers
from tests.support.documents import docx, paragraph, pdf
from tests.support.outcomes import text_of
from tests.support.processes import is_alive
from tests.support.waiting import until

USER = 4321
KINDS = [
    pytest.param(
        "bubblewrap", marks=pytest.mark.skipif(bool(boxes.MISSING), reason=boxes.MISSING or "bwrap is there")
    ),
    pytest.param(
        "docker",
        marks=[
            pytest.mark.docker,
            pytest.mark.skipif(
                bool(containers.missing()), reason=containers.missing() or "an engine is there"
            ),
        ],
    ),
]


class Sandboxed:
    """A host whose calls ask for one kind of sandbox."""

    def __init__(self, host: Host, kind: str) -> None:
        self.host = host
        self.kind = kind

    async def says(self, tool: str, **arguments: object) -> str:
        call = await self.host.ask(tool, sandbox=self.kind, scope="chat", **arguments)
        outcome = await self.host.result(call)
        return f"{outcome.status}: {text_of(outcome)}"

    async def begin(self, command: str, **more: object) -> str:
        """The process that runs on."""
        arguments = {"command": command, "background": True, **more}
        call = await self.host.ask("bash", sandbox=self.kind, scope="chat", **arguments)
        outcome = await self.host.result(call)
        assert outcome.status == "ok", outcome
        return str(outcome.details["process"])

    async def polled(self, process: str, words: str) -> str:
        said = ""
        async with asyncio.timeout(20):
            while words not in said:
                said += await self.says("process", action="poll", process=process, wait_s=2)
        return said


@pytest.fixture(params=KINDS)
async def box(host: Host, request: pytest.FixtureRequest) -> AsyncIterator[Sandboxed]:
    host.workspace.mkdir()
    if request.param == "docker":
        os.chown(host.workspace, USER, USER)
        settings = {"sandboxes.docker.image": containers.PLAIN_IMAGE, "sandboxes.docker.warm": 0}
        host.environ["FAIRLEAD_OVERRIDES"] = json.dumps(settings)
    await host.started("e1")
    yield Sandboxed(host, request.param)
    host.close()
    if request.param == "docker":
        containers.remove_all(containers.identity_of(host.state))
    else:
        boxes.clear(host.state)


async def test_every_kind_of_tool_works(box: Sandboxed) -> None:
    folder = box.host.workspace
    (folder / "f.pdf").write_bytes(pdf(["words in a box"]))
    (folder / "f.docx").write_bytes(docx(paragraph("more words")))
    (folder / ".fairlead").mkdir()
    (folder / ".fairlead/project.json").write_text('{"tests": "echo a.py:1:2: F401 bad; exit 2"}')
    patch = "*** Begin Patch\n*** Add File: src/new\n+x\n*** End Patch"
    assert "words in a box" in await box.says("read", path="f.pdf")
    assert "more words" in await box.says("read", path="f.docx")
    assert await box.says("apply_patch", patch=patch) == "ok: Patched:\nA src/new"
    assert await box.says("delete", path="src", recursive=True) == "ok: Deleted src: 1 files and 1 folders."
    assert "exit code 2]\na.py:1 F401 bad" in await box.says("run_tests")
    assert (await box.says("bash", command="tty && stty size", pty=True)).startswith("ok: /dev/pts/")


async def test_process_in_the_background_is_written_to_and_killed(box: Sandboxed) -> None:
    process = await box.begin("echo up; read word; echo got $word; sleep 300")
    sent = await box.says("process_control", action="write", process=process, text="this\n")
    assert sent.startswith("ok: Sent 5 bytes")
    await box.polled(process, "got this")
    assert await box.says("process_control", action="kill", process=process) == f"ok: {process} killed."


async def test_keys_reach_a_terminal(box: Sandboxed) -> None:
    process = await box.begin("PS1='ready> ' bash --norc --noprofile -i", pty=True)
    await box.polled(process, "ready> ")
    keys = ["echo $((6 * 7))", "Enter", "exit 3", "Enter"]
    await box.says("process_control", action="send_keys", process=process, keys=keys)
    assert "\n42\r\n" in (await box.polled(process, "exit code 3")).replace("\x1b[?2004l\r", "\n")


@pytest.fixture
async def bubble(host: Host) -> AsyncIterator[Sandboxed]:
    if boxes.MISSING:
        pytest.skip(boxes.MISSING)
    await host.started("e1")
    yield Sandboxed(host, "bubblewrap")
    host.close()
    boxes.clear(host.state)


async def test_git_works_in_bubblewrap(bubble: Sandboxed) -> None:
    await bubble.says("bash", command="git init -q -b main; echo x > new")
    assert "Committed" in await bubble.says("git_commit", message="m")
    assert await bubble.says("git_status") == "ok: On branch main\nNothing has changed."
    assert await bubble.says("git_diff") == "ok: No differences."
    assert (await bubble.says("git_log")).endswith("Fairlead: m (HEAD -> main)")


async def test_killed_runner_of_a_box_takes_its_processes_along(bubble: Sandboxed) -> None:
    process = await bubble.begin("echo up; sleep 300")
    await bubble.polled(process, "up")
    (first,) = boxes.first_processes(bubble.host.state)
    os.kill(first, 9)
    await until(lambda: not is_alive(first), "the runner is dead")
    assert "its runner died" in await bubble.says("process", action="poll", process=process)
