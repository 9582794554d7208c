"""Scheduler services inside the test's own loop, and what a client of theirs would do."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.errors import BusUnavailableError, NotFoundError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.entries import Entry
from fairlead_common.received import Delivery
from fairlead_common.session_log.records import entries_in
from fairlead_scheduler import main as scheduler_main
from tests.support.nats_server import NatsServer
from tests.support.waiting import until

FAST = {"cron.min_interval_s": 0.1, "models.default": "openai/scripted", "agents.main.mode": "allow-all"}


class RefusalError(Exception):
    """What a scheduler answered instead of doing it."""

    def __init__(self, refusal: dict[str, Any]) -> None:
        super().__init__(refusal["message"])
        self.code = refusal["code"]
        self.field = refusal.get("field")


async def ask(bus: Bus, method: str, /, **fields: Any) -> Any:
    """The answer of a scheduler, waiting for one to be there."""
    data = msgspec.json.encode(fields)
    reply = await until(lambda: _reply(bus, s.api(method), data))
    answer = msgspec.json.decode(reply.data)
    if isinstance(answer, dict) and "error" in answer and "code" in str(answer["error"]):
        assert reply.headers["Nats-Service-Error-Code"]
        raise RefusalError(answer["error"])
    return answer


async def _reply(bus: Bus, subject: str, data: bytes) -> Delivery | None:
    try:
        return await bus.request(subject, data, timeout_s=1.0)
    except (NotFoundError, BusUnavailableError):
        return None  # none is there yet


def event_job(text: str = "tick", **fields: Any) -> dict[str, Any]:
    """A job of the main session."""
    return {"name": "n", "payload": {"kind": "systemEvent", "text": text}, **fields}


def turn_job(message: str = "work", **fields: Any) -> dict[str, Any]:
    """An isolated job; `payload` is merged into its own."""
    payload = {"kind": "agentTurn", "message": message, **fields.pop("payload", {})}
    return {"name": "n", "payload": payload, **fields}


def at(in_s: float) -> dict[str, Any]:
    """Once, so many seconds from now."""
    return {"kind": "at", "atMs": round((time.time() + in_s) * 1000)}


async def runs(bus: Bus, job: str, count: int = 1, **wanted: Any) -> list[dict[str, Any]]:
    """The runs of a job, once there are `count` that ended and are as wanted."""
    entries: list[dict[str, Any]] = []

    async def look() -> list[dict[str, Any]]:
        nonlocal entries
        entries = (await ask(bus, "cron.runs", id=job))["entries"]
        ended = [e for e in entries if e["status"] in ("ok", "error", "skipped")]
        fitting = [e for e in ended if all(e.get(key) == value for key, value in wanted.items())]
        return fitting if len(fitting) >= count else []

    try:
        await until(look)
    except BaseException:
        print(entries)
        raise
    return await look()


async def slots(bus: Bus, job: str) -> list[str]:
    """The slots of a job that were fired, in order of their subjects' records."""
    return [r.subject.rpartition(".")[2] async for r in bus.read(s.SLOTS, f"fairlead.cron.{job}.*")]


async def mail(bus: Bus, session: str, kind: str = "notice") -> list[tuple[str, Any]]:
    """Keys and bodies of the mail of one kind, in order."""
    return [
        (s.parse_session(record.subject).key, msgspec.json.decode(record.data))
        async for record in bus.read(s.SESSIONS, f"fairlead.session.{session}.in.{kind}.>")
    ]


async def log_of(bus: Bus, session: str) -> list[Entry]:
    """The log of a session."""
    return [
        each.read()
        async for record in bus.read(s.SESSIONS, s.session_log(session))
        for each in entries_in(record.seq, record.data, record.headers)
    ]


@contextlib.asynccontextmanager
async def scheduler(
    nats: NatsServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str = "scheduler-1",
    settings: dict[str, object] | None = None,
) -> AsyncIterator[asyncio.Event]:
    """A scheduler on a connection of its own; setting the event drains it."""
    monkeypatch.setenv("FAIRLEAD_WORKER", name)
    monkeypatch.setenv("FAIRLEAD_OVERRIDES", msgspec.json.encode({**FAST, **(settings or {})}).decode())
    bus = await Bus.connect(BusSettings(url=nats.url), name=name)
    stop = asyncio.Event()
    try:
        parts = await scheduler_main.setup(bus)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(part(stop)) for part in parts]
            try:
                yield stop
            finally:
                stop.set()
                await asyncio.wait(running, timeout=10)
    finally:
        await bus.close()


async def fired_after(bus: Bus, job: str, after_ms: int) -> bool:
    """Whether the job has a slot after this moment."""
    return any(int(slot) > after_ms for slot in await slots(bus, job))


def drop(folder: Path, name: str, **event: object) -> Path:
    """Put a file into the folder as a careful writer does: whole, or not at all."""
    path = folder / name
    path.with_suffix(".part").write_text(json.dumps(event))
    path.with_suffix(".part").rename(path)
    return path


async def system_events(bus: Bus) -> list[str]:
    """The texts of system events that the main session was sent."""
    return [body["text"] for key, body in await mail(bus, "main") if key.startswith("system-")]
