"""Channels to runners that listen on a socket."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from fairlead_tools import runner_socket
from fairlead_tools.local import LocalSandbox
from fairlead_tools.runner_socket import listens
from fairlead_tools.sandbox import Place


async def test_channel_is_kept_while_its_runner_lives_and_forgotten_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_socket, "MANY", 1)
    places = [Place(workspace=str(tmp_path / name)) for name in ("a", "b", "c")]
    async with asyncio.TaskGroup() as tasks:
        sandbox = LocalSandbox(tmp_path / "state", tasks)
        try:
            first = await sandbox.channel(places[0])
            assert await sandbox.channel(places[0]) is first
            assert first.features["no_new_privs"] is True
            [state] = (tmp_path / "state").glob("runners/*")
            assert listens(state)
            os.kill(int((state / "lock").read_text()), signal.SIGKILL)
            async with asyncio.timeout(10):
                while not first.lost:
                    await asyncio.sleep(0.01)
            assert not listens(state)
            for place in places[1:]:
                await sandbox.channel(place)
            await sandbox.channel(places[1])
            assert places[0].workspace not in sandbox._channels._channels
            again = await sandbox.channel(places[0])
            assert again is not first
            assert not again.lost
        finally:
            sandbox.close()
            for lock in (tmp_path / "state").glob("runners/*/lock"):
                with contextlib.suppress(ProcessLookupError, ValueError):
                    os.kill(int(lock.read_text()), signal.SIGKILL)


def test_folder_without_a_runner_does_not_listen(tmp_path: Path) -> None:
    assert not listens(tmp_path)
    assert not listens(tmp_path / "missing")
