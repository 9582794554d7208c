"""Executors make the workspaces of sessions, remove them when they are told to, and say when they drain."""

import asyncio
import contextlib
import json
import subprocess
from pathlib import Path

import msgspec

from fairlead_common.bus.buckets import Bucket
from fairlead_common.errors import NotFoundError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.messages import ExecutorInfo, WorkspaceQuery
from tests.integration.tools_fixture import HOST, Host
from tests.support.outcomes import text_of
from tests.support.processes import is_alive
from tests.support.waiting import until


def repository(folder: Path) -> Path:
    folder.mkdir()
    (folder / "AGENTS.md").write_text("Be brief.\n")
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True, timeout=20)
    return folder


async def test_session_works_in_its_own_scratch_until_that_is_gone(host: Host) -> None:
    await host.started()
    mine = {"workspace": "chat-1", "workspace_kind": "scratch"}
    assert (await host.run("bash", command="echo x > kept; ls", **mine)).status == "ok"
    assert text_of(await host.run("bash", command="ls", **mine)) == "kept\n"
    other = {"workspace": "chat-2", "workspace_kind": "scratch"}
    assert text_of(await host.run("ls", **other)) != "kept"
    bucket = Bucket(host.bus, s.BUCKET_WORKSPACES)
    key = s.workspace_gone(HOST, "chat-1")
    await bucket.put(key, b"{}")
    folder = host.home / "workspaces" / ".sessions" / HOST
    await until(lambda: not (folder / "chat-1").exists(), "it is removed")
    async with asyncio.timeout(10):
        while await bucket.get(key) is not None:
            await asyncio.sleep(0.02)
    assert (folder / "chat-2").is_dir()


async def test_command_that_still_runs_in_a_workspace_ends_before_it_is_removed(host: Host) -> None:
    await host.started()
    command = "echo $$ > began; while :; do echo x > $((n=n+1)); done"
    call = await host.ask("bash", command=command, workspace="chat-1", workspace_kind="scratch")
    folder = host.home / "workspaces" / ".sessions" / HOST / "chat-1"
    await until(lambda: (folder / "began").exists() and (folder / "began").read_text(), "it runs")
    pid = int((folder / "began").read_text())
    await Bucket(host.bus, s.BUCKET_WORKSPACES).put(s.workspace_gone(HOST, "chat-1"), b"{}")
    await until(lambda: folder.with_suffix(".gone").exists() and not is_alive(pid), "it ended")
    assert (await host.result(call)).status == "cancelled"
    await until(lambda: "workspace_removed" in host.log("e1"), "the workspace is removed")
    assert not folder.with_suffix(".trash").exists()


async def test_workspace_that_was_deleted_while_the_host_was_down_is_removed_when_it_is_up(
    host: Host,
) -> None:
    await host.started()
    await host.run("bash", command="touch x", workspace="chat-1", workspace_kind="scratch")
    host.kill()
    await Bucket(host.bus, s.BUCKET_WORKSPACES).put(s.workspace_gone(HOST, "chat-1"), b"{}")
    await host.started()
    folder = host.home / "workspaces" / ".sessions" / HOST / "chat-1"
    await until(lambda: folder.with_suffix(".gone").exists() and not folder.exists(), "it is removed")


async def instructions(host: Host, query: WorkspaceQuery) -> bytes:
    """What is answered, as soon as anybody answers."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(NotFoundError):
                subject = s.workspace_instructions(HOST)
                return (await host.bus.request(subject, msgspec.json.encode(query), timeout_s=20.0)).data
            await asyncio.sleep(0.02)


async def test_clone_is_there_for_the_first_call_and_for_the_instructions(host: Host, tmp_path: Path) -> None:
    source = repository(tmp_path / "source")
    await host.started()
    query = WorkspaceQuery(workspace="chat-1", workspace_kind="clone", repository=str(source))
    assert await instructions(host, query) == b"Be brief.\n"
    mine = {"workspace": "chat-1", "workspace_kind": "clone", "repository": str(source)}
    outcome = await host.run("bash", command="git log --format=%s; git status --porcelain", **mine)
    assert text_of(outcome) == "one\n"
    wrong = await host.run(
        "bash", command="ls", **{**mine, "workspace": "chat-2", "repository": "ext::sh -c id"}
    )
    assert (wrong.status, wrong.is_error) == ("error", True)
    assert "repository" in text_of(wrong) or "address" in text_of(wrong)
    apart = await host.run(
        "bash",
        command="ls",
        **{**mine, "workspace": "chat-3", "workspace_kind": "worktree", "sandbox": "docker"},
    )
    assert apart.status == "error"
    assert "out of reach in sandbox 'docker'; use a clone" in text_of(apart)


async def test_executor_that_drains_says_so_and_hands_its_command_over(host: Host) -> None:
    """The command goes on in its runner; the sibling answers for it."""
    bucket = Bucket(host.bus, s.BUCKET_EXECUTORS)

    async def info() -> ExecutorInfo | None:
        stored = await bucket.get(f"{HOST}.e1")
        return None if stored is None else msgspec.json.decode(stored.data, type=ExecutorInfo)

    await host.started(FAIRLEAD_LABELS="gpu=yes", FAIRLEAD_POOL="big")
    said: list[dict[str, object]] = []

    def note(delivery: object) -> None:
        data = getattr(delivery, "data", b"")
        if data:
            said.append(json.loads(data))

    await host.bus.subscribe(f"fairlead.kv.executors.{HOST}.e1", note)
    async with asyncio.timeout(10):
        while (now := await info()) is None:
            await asyncio.sleep(0.02)
    assert (now.pool, now.labels, now.draining) == ("big", {"gpu": "yes"}, False)
    call = await host.ask("bash", command="touch began; until [ -e go ]; do sleep 0.02; done; echo done")
    await until(lambda: (host.workspace / "began").exists(), "it runs")
    assert host.terminate() == 0
    await until(lambda: any(each.get("draining") for each in said), "it says that it drains")
    async with asyncio.timeout(10):  # the last one expires soon
        while await info() is not None:
            await asyncio.sleep(0.02)
    await host.started("e2")
    (host.workspace / "go").touch()
    assert text_of(await host.result(call)) == "done\n"
