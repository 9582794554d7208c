"""A gateway that is newer than the scheduler it asks: services may be updated in any order."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from fairlead_common.cron.requests import GetJob, TransferJob, Wake
from fairlead_scheduler.api_service import ApiService, Method
from tests.support.fake_bus import FakeBus
from tests.support.gateway_in_memory import TOKEN, GatewayInMemory, gateway_in_memory

# What each of these methods took before its last key was added.
_LATEST: Final[dict[str, tuple[type[msgspec.Struct], str]]] = {
    "wake": (Wake, "asked_by"),
    "cron.get": (GetJob, "after_ms"),
    "cron.transfer": (TransferJob, "session"),
}


def earlier(kind: type[msgspec.Struct], later: str) -> Any:
    """The request as an earlier version has it: without its key `later`."""
    fields = [
        (each.name, each.type) if each.required else (each.name, each.type, each.default)
        for each in msgspec.structs.fields(kind)
        if each.name != later
    ]
    return msgspec.defstruct(kind.__name__, fields, kw_only=True, rename="camel", forbid_unknown_fields=True)


class EarlierScheduler:
    """Answers as a scheduler does, and notes what it accepted."""

    def __init__(self, bus: FakeBus) -> None:
        self.accepted: list[dict[str, Any]] = []
        methods = [Method(name, earlier(*latest), self._accept) for name, latest in _LATEST.items()]
        self.service = ApiService(bus, "scheduler", methods)

    async def _accept(self, body: msgspec.Struct) -> object:
        self.accepted.append(msgspec.to_builtins(body))
        return {"fired": True, "job": {"id": "j"}}


@pytest.fixture
async def scheduler(bus: FakeBus) -> AsyncIterator[EarlierScheduler]:
    made = EarlierScheduler(bus)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.service.run(stop))
        yield made
        stop.set()


@pytest.fixture
async def world(bus: FakeBus, tmp_path: Path) -> AsyncIterator[GatewayInMemory]:
    async with gateway_in_memory(bus, tmp_path) as made:
        await made.user("ann", "operator")
        await made.user("eve", "admin")
        await made.session("anns", "ann")
        yield made


async def test_a_wake_reaches_a_scheduler_that_does_not_know_who_asked(
    world: GatewayInMemory, scheduler: EarlierScheduler
) -> None:
    body = {"text": "the build is red", "mode": "now", "session": "anns", "key": "w1"}
    answer = await world.ask(world.token("ann", "write"), "POST", "/api/wake", body)
    assert (answer.status_code, answer.json()["fired"]) == (202, True), answer.text
    assert [{key: each[key] for key in body} for each in scheduler.accepted] == [body]


async def test_a_job_is_shown_by_a_scheduler_that_does_not_know_the_newest_parameter(
    world: GatewayInMemory, scheduler: EarlierScheduler
) -> None:
    answer = await world.ask(TOKEN, "GET", "/api/cron/jobs/j")
    assert answer.status_code == 200, answer.text
    assert [each["id"] for each in scheduler.accepted] == ["j"]


async def test_what_would_be_something_else_without_a_key_is_refused(
    world: GatewayInMemory, scheduler: EarlierScheduler
) -> None:
    answer = await world.ask(TOKEN, "GET", "/api/cron/jobs/j?after_ms=5000")
    assert answer.status_code == 400
    assert "unknown field `afterMs`" in answer.json()["error"]["message"]
    assert scheduler.accepted == []
