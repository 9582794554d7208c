"""A session is told of the end of its background process once, whoever is killed on the way."""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.messages import ProcessEnded, ToolCall
from tests.integration.tools_fixture import HOST, WAIT_S, Host
from tests.support.waiting import until

UNTIL_GO = "echo begun; until [ -e go ]; do sleep 0.05; done; echo over; exit 3"


async def started(host: Host, command: str = UNTIL_GO) -> tuple[ToolCall, str]:
    """The call, and the name of the process that it left running."""
    call = await host.ask("bash", command=command, background=True)
    return call, str((await host.result(call)).details["process"])


async def told(host: Host, call: ToolCall) -> ProcessEnded:
    """The mail, once it is there; of one process there is never a second one."""
    subject = s.mail(call.session, "ended", call.call_id)
    async with asyncio.timeout(WAIT_S):
        while (record := await host.bus.last(s.SESSIONS, subject)) is None:
            await asyncio.sleep(0.02)
    await until(lambda: not watched(host), "no executor watches over it any more")
    first = await host.bus.first(s.SESSIONS, subject)
    assert first is not None
    assert first.seq == record.seq
    return msgspec.json.decode(record.data, type=ProcessEnded)


def watched(host: Host) -> list[Path]:
    return list((host.state / "background").glob("[!.]*"))


def go(host: Host) -> None:
    (host.workspace / "go").touch()


async def test_a_session_is_told_how_its_process_ended(host: Host) -> None:
    await host.started("e1")
    call, name = await started(host)
    go(host)
    ended = await told(host, call)
    assert (ended.call_id, ended.token, ended.host) == (call.call_id, call.token, HOST)
    assert (ended.process, ended.command, ended.state) == (name, UNTIL_GO, "ended with exit code 3")
    assert (ended.output, ended.executor) == ("begun\nover\n", "e1")
    yielding = await host.ask("bash", command="sleep 0.3; echo late", yield_s=1)
    assert (await host.result(yielding)).details == {}
    asked = await host.ask("bash", command="sleep 1.5; echo late", yield_s=1)
    assert (await told(host, asked)).output == "late\n"


async def test_a_process_that_its_session_kills_is_not_told_of(host: Host) -> None:
    await host.started("e1")
    _, name = await started(host, "sleep 300")
    await host.run("process_control", action="kill", process=name)
    await until(lambda: not watched(host), "no executor watches over it any more")
    assert await host.bus.last(s.SESSIONS, "fairlead.session.chat.in.ended.*") is None


async def test_an_executor_that_is_killed_tells_once_it_is_back(host: Host) -> None:
    await host.started("e1")
    call, _ = await started(host)
    host.kill("e1")
    go(host)
    await host.started("e1")
    assert (await told(host, call)).state == "ended with exit code 3"


async def test_the_end_of_a_process_whose_runner_was_killed_is_told(host: Host) -> None:
    await host.started("e1")
    call, _ = await started(host)
    for pid in host.runners():
        os.kill(pid, signal.SIGKILL)
    assert (await told(host, call)).state == "ended: its runner died and it was killed with it"


async def test_a_workspace_that_is_gone_is_not_made_again_for_it(host: Host) -> None:
    await host.started("e1")
    call, _ = await started(host)
    await host.settled()  # else its runner is asked about the call itself
    host.kill("e1")
    for pid in host.runners():
        os.kill(pid, signal.SIGKILL)
    moved, host.workspace = host.workspace, host.workspace.with_name("other")
    moved.rename(moved.with_name("moved"))
    await host.started("e1")
    ended = await told(host, call)
    assert "its state is unknown (its workspace is gone)" in ended.state
    assert not moved.exists()


async def test_a_note_that_a_power_cut_left_empty_hides_no_other(host: Host) -> None:
    await host.started("e1")
    call, _ = await started(host)
    host.kill("e1")
    empty = host.state / "background" / "empty"
    empty.touch()
    await host.started("e2")
    go(host)
    assert (await told(host, call)).output == "begun\nover\n"
    assert not empty.exists()


@pytest.mark.parametrize("point", ["tools.watch.before", "tools.ended.before", "tools.ended.after"])
async def test_an_executor_killed_on_the_way_is_followed_by_one_that_tells_unless_it_did(
    host: Host, tmp_path: Path, point: str
) -> None:
    await _killed_at(host, tmp_path, point, "kill 1")


async def test_a_lost_acknowledgement_of_the_mail_tells_nothing_twice(host: Host, tmp_path: Path) -> None:
    await _killed_at(host, tmp_path, "tools.ended.after", "drop_ack 1", dies=False)


async def _killed_at(host: Host, tmp_path: Path, point: str, action: str, *, dies: bool = True) -> None:
    points = tmp_path / "points"
    points.mkdir()
    (points / point).write_text(action)
    first = await host.started("e1", FAIRLEAD_TEST="1", FAIRLEAD_FAILPOINTS=str(points))
    call = await host.ask("bash", command=UNTIL_GO, background=True)
    go(host)
    await until(lambda: (points / "landed").exists(), "the point is passed")
    if dies:
        assert await asyncio.to_thread(first.wait, WAIT_S) == -signal.SIGKILL
        await host.started("e2")
    assert (await told(host, call)).output == "begun\nover\n"
    assert host.runners() != []
