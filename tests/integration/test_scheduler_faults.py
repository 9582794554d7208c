"""What goes wrong around the scheduler: refusals of the server, strangers' nonsense, deleted sessions."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.cron.runs import RunEntry
from fairlead_common.errors import ConflictError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import TextBlock, UserMessage
from fairlead_common.protocol.entries import MessageEntry
from fairlead_common.protocol.ids import new_id
from fairlead_scheduler.runs import run_watcher
from fairlead_scheduler.runs.run_executor import RunExecutor
from fairlead_scheduler.runs.run_store import RunStore
from tests.support.nats_server import NatsServer
from tests.support.scheduler_world import ask, at, event_job, mail, runs, scheduler, turn_job
from tests.support.waiting import until


async def _allow_slots(bus: Bus, max_bytes: int) -> None:
    config = (await bus.api(f"STREAM.INFO.{s.SLOTS}"))["config"]
    assert isinstance(config, dict)
    await bus.api(f"STREAM.UPDATE.{s.SLOTS}", {**config, "max_msg_size": max_bytes})


async def test_a_job_whose_slot_the_server_refuses_fires_once_the_server_takes_it(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduler(nats_server, monkeypatch):
        await ask(bus, "cron.status")
        await _allow_slots(bus, 8)  # the server answers 10054, which is none of those that are known to pass
        every = {"kind": "every", "everyMs": 200}
        job = (await ask(bus, "cron.add", job=event_job(schedule=every)))["job"]

        async def overdue() -> bool:
            status = await ask(bus, "cron.status")
            due_ms = status["nextRunAtMs"]
            return bool(status["nextJobId"] == job["id"] and due_ms < job["createdAtMs"] + 1000)

        async def tried() -> bool:
            return refused.is_set()

        refused = asyncio.Event()
        original = Bus.create

        async def create(self: Bus, stream: str, *rest: Any, **more: Any) -> int:
            try:
                return await original(self, stream, *rest, **more)
            except Exception:
                if stream == s.SLOTS:
                    refused.set()
                raise

        monkeypatch.setattr(Bus, "create", create)
        await until(tried)
        await until(overdue)
        await _allow_slots(bus, -1)
        assert (await runs(bus, job["id"]))[0]["status"] == "ok"


async def test_an_open_run_that_was_left_while_open_runs_were_read_is_taken_up_again(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven, let_go, left = asyncio.Event(), asyncio.Event(), asyncio.Event()
    change, open_since, guard = RunStore.change, RunStore.open_since, RunExecutor._guard

    async def changed_elsewhere_once(self: RunStore, run: RunEntry, revision: int) -> int:
        if driven.is_set():
            return await change(self, run, revision)
        driven.set()
        await let_go.wait()
        raise ConflictError("another scheduler")

    async def read_while_it_is_left(self: RunStore, seq: int) -> tuple[list[tuple[str, str]], int]:
        found = await open_since(self, seq)
        if driven.is_set() and not left.is_set():
            let_go.set()
            await asyncio.wait_for(left.wait(), 10)
        return found

    async def told_of(self: RunExecutor, each: Any, work: Any) -> None:
        await guard(self, each, work)
        left.set()

    monkeypatch.setattr(RunStore, "change", changed_elsewhere_once)
    monkeypatch.setattr(RunStore, "open_since", read_while_it_is_left)
    monkeypatch.setattr(RunExecutor, "_guard", told_of)
    async with scheduler(nats_server, monkeypatch):
        job = (await ask(bus, "cron.add", job=turn_job(schedule=at(0.1))))["job"]
        await asyncio.wait_for(driven.wait(), 10)

        async def prompted() -> list[tuple[str, Any]]:
            return await mail(bus, f"cron-{job['id']}", "prompt")

        assert len(await until(prompted)) == 1


async def test_a_message_that_is_too_deep_to_be_read_harms_no_later_one(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = {"subject": "ci.>", "session": "builds", "template": "{json.name}!", "key_field": "id"}
    async with scheduler(nats_server, monkeypatch, settings={"cron.triggers": {"ci": trigger}}):
        await ask(bus, "cron.status")
        for body in (b"[" * 20_000, b'{"name": ' * 5_000, b"\xff\xfe", b'{"id": "b1", "name": "after"}'):
            await bus.emit("ci.build", body)

        async def said() -> bool:
            return "after!" in [body["text"] for _, body in await mail(bus, "builds", "prompt")]

        await until(said)


# -- sessions of runs that go away, and runs that do not end -----------------------------


async def _prompted(bus: Bus) -> str:
    """The session of a new isolated run, once its prompt is there. No agent is."""
    job = (await ask(bus, "cron.add", job=turn_job(schedule=at(0.1), payload={"timeoutSeconds": 0.2})))["job"]
    session = f"cron-{job['id']}"

    async def prompts() -> list[tuple[str, Any]]:
        return await mail(bus, session, "prompt")

    await until(prompts)
    return session


async def _freed(bus: Bus) -> bool:
    status = await ask(bus, "cron.status")
    return (status["running"], status["queued"]) == (0, 0)


async def test_a_run_whose_session_was_deleted_ends_though_there_is_new_mail_for_it(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watcher, "WAIT_S", 0.2)
    async with scheduler(nats_server, monkeypatch):
        session = await _prompted(bus)
        await bus.purge(s.SESSIONS, s.session_all(session))
        await bus.create(s.SESSIONS, s.mail(session, "prompt", "later"), b"hello again")
        (entry,) = await runs(bus, session.removeprefix("cron-"))
        assert (entry["status"], entry["outcome"]) == ("error", "deleted")
        await until(lambda: _freed(bus))
        assert [key for key, _ in await _raw(bus, session)] == ["later"]


async def _raw(bus: Bus, session: str) -> list[tuple[str, bytes]]:
    subject = f"fairlead.session.{session}.in.prompt.>"
    return [(s.parse_session(r.subject).key or "", r.data) async for r in bus.read(s.SESSIONS, subject)]


async def test_a_run_whose_session_was_deleted_while_no_scheduler_was_there_is_not_prompted_again(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduler(nats_server, monkeypatch):
        session = await _prompted(bus)
    await bus.purge(s.SESSIONS, s.session_all(session))
    async with scheduler(nats_server, monkeypatch, "scheduler-2"):
        (entry,) = await runs(bus, session.removeprefix("cron-"))
        assert (entry["status"], entry["outcome"]) == ("error", "deleted")
        await until(lambda: _freed(bus))
        assert await _raw(bus, session) == []


async def test_a_run_that_does_not_stop_when_told_gives_its_place_back_and_is_not_repeated(
    nats_server: NatsServer, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watcher, "WAIT_S", 0.2)
    monkeypatch.setattr(run_watcher, "ABORT_PATIENCE_S", 0.5)
    async with scheduler(nats_server, monkeypatch):
        session = await _prompted(bus)
        ((key, _),) = await mail(bus, session, "prompt")
        said = UserMessage(content=[TextBlock(text="work")], keys=[str(key)])
        entry = MessageEntry(id=new_id(), ts=round(time.time() * 1000), run_id="run-1", message=said)
        await bus.publish(s.session_log(session), msgspec.json.encode(entry))
        (ended,) = await runs(bus, session.removeprefix("cron-"))
        assert (ended["status"], ended["outcome"], ended["attempt"]) == ("error", "unknown", 1)
        ((_, abort),) = await mail(bus, session, "abort")
        assert abort["run_id"] == "run-1"
        await until(lambda: _freed(bus))
