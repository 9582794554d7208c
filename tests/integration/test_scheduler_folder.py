"""Event files: dropped into a folder, they happen; broken ones are set aside with the reason."""

import asyncio
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fairlead_common.bus import Bus
from fairlead_scheduler.sources import folder as folder_module
from tests.support.nats_server import NatsServer
from tests.support.scheduler_world import ask, drop, mail, scheduler, system_events
from tests.support.usage import no_descriptors
from tests.support.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "events"
    made.mkdir()
    return made


async def test_an_immediate_file_is_said_once_though_two_schedulers_see_it(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    settings: dict[str, object] = {"cron.folder": str(folder)}
    path = drop(folder, "before.json", type="immediate", text="was here before")
    async with (
        scheduler(nats_server, monkeypatch, "one", settings),
        scheduler(nats_server, monkeypatch, "two", settings),
    ):
        await until(lambda: _said(bus, ["was here before"]))
        drop(folder, "now.json", type="immediate", text="the backup failed")
        await until(lambda: _said(bus, ["was here before", "the backup failed"]))
        await until(lambda: _gone(path, folder / "now.json"))
        assert await system_events(bus) == ["was here before", "the backup failed"]


async def _said(bus: Bus, wanted: list[str]) -> bool:
    return await system_events(bus) == wanted


async def _gone(*paths: Path) -> bool:
    return not any(path.exists() for path in paths)


async def test_a_folder_that_the_system_does_not_let_us_watch_is_looked_at_now_and_then(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(folder_module, "SCAN_S", 0.3)
    async with scheduler(nats_server, monkeypatch, "one", {"cron.folder": str(folder)}) as stop:
        drop(folder, "first.json", type="immediate", text="first")
        await until(lambda: _said(bus, ["first"]))
        with no_descriptors(spare=1):  # enough to read a file, not to watch a folder
            drop(folder, "second.json", type="immediate", text="second")
            await until(lambda: _said(bus, ["first", "second"]))
            drop(folder, "third.json", type="immediate", text="third")
            await until(lambda: _said(bus, ["first", "second", "third"]))
        drop(folder, "fourth.json", type="immediate", text="fourth")
        await until(lambda: _said(bus, ["first", "second", "third", "fourth"]))
        assert not stop.is_set()


async def test_a_one_shot_file_happens_at_its_time_and_is_gone(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    async with scheduler(nats_server, monkeypatch, settings={"cron.folder": str(folder)}):
        at = datetime.now(UTC) + timedelta(seconds=1)
        path = drop(folder, "later.json", type="one-shot", at=at.isoformat(), text="it is time")
        await until(lambda: _said(bus, ["it is time"]))
        assert time.time() >= at.timestamp()
        await until(lambda: _gone(path))


async def test_a_periodic_job_follows_its_file(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    async with scheduler(nats_server, monkeypatch, settings={"cron.folder": str(folder)}):
        path = drop(folder, "tick.json", type="periodic", schedule="* * * * * *", text="tick", timezone="UTC")
        await until(lambda: _said_often(bus, "tick"))
        drop(folder, "tick.json", type="periodic", schedule="* * * * * *", text="tock")
        await until(lambda: _said_often(bus, "tock"))
        path.unlink()

        async def no_jobs() -> bool:
            return not (await ask(bus, "cron.list", includeDisabled=True))["jobs"]

        await until(no_jobs)


async def _said_often(bus: Bus, text: str) -> bool:
    return (await system_events(bus)).count(text) >= 1


async def test_the_reason_can_be_read_by_whoever_left_the_file(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Services make files for their own user alone; this one is for another."""
    (folder / "bad.json").write_text("{")
    os.utime(folder / "bad.json", (time.time() - 60, time.time() - 60))
    before = os.umask(0o077)
    try:
        async with scheduler(nats_server, monkeypatch, settings={"cron.folder": str(folder)}):
            await until(lambda: _is_open(folder / "bad.json.error"))
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "truncated"),
        ('{"type": "sometimes", "text": "x"}', "Invalid enum value"),
        ('{"type": "immediate"}', "needs a text or a prompt"),
        ('{"type": "immediate", "text": "x", "session": "a.b"}', "session"),
        ('{"type": "periodic", "schedule": "nonsense", "text": "x"}', "must have 5 fields"),
        ('{"type": "one-shot", "at": "2020-01-01T00:00:00Z", "text": "x"}', "must be in the future"),
        ('{"type": "one-shot", "at": "tomorrow", "text": "x", "other": 1}', "unknown field"),
    ],
)
async def test_a_broken_file_is_set_aside_with_its_reason(
    nats_server: NatsServer,
    bus: Bus,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    content: str,
    reason: str,
) -> None:
    path = folder / "bad.json"
    path.write_text(content)
    os.utime(path, (time.time() - 60, time.time() - 60))
    async with scheduler(nats_server, monkeypatch, settings={"cron.folder": str(folder)}):
        await until(lambda: _exists(folder / "bad.json.error"))
        await until(lambda: _says_something(folder / "bad.json.error"))  # it is made, then written
        assert reason in (folder / "bad.json.error").read_text()
        await until(lambda: _exists(folder / "bad.json.broken"))
        assert (folder / "bad.json.broken").read_text() == content
        assert await mail(bus, "main") == []


async def _says_something(path: Path) -> bool:
    return bool(path.read_text())


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def _is_open(path: Path) -> bool:
    return path.exists() and path.stat().st_mode & 0o044 == 0o044
