"""Hints that a list has changed, and who wants to hear them. The lists are the truth."""

import asyncio
from typing import Final, Literal, NamedTuple

import msgspec
import structlog

from fairlead_common.bus import Bus
from fairlead_common.cron.runs import CronEvent
from fairlead_common.protocol import subjects
from fairlead_common.received import Delivery

log = structlog.get_logger()

MAX_PENDING: Final = 1000

HintKind = Literal["session", "approval", "job", "executor"]


class Hint(NamedTuple):
    """One thing that changed; an empty id: look at everything of this kind.

    Fields:
        action, status: of a job's last event (`CronEvent`); empty for other kinds.
    """

    kind: HintKind
    id: str
    action: str = ""
    status: str = ""


class Viewer:
    """What one client was not told yet."""

    def __init__(self) -> None:
        self._pending: dict[tuple[HintKind, str], Hint] = {}
        self.woken = asyncio.Event()

    def note(self, hint: Hint) -> None:
        """Tell it soon: of one thing only the last change. Too much at once becomes `look at everything`."""
        if len(self._pending) >= MAX_PENDING:
            self._pending = {(kind, ""): Hint(kind, "") for kind, _ in self._pending}
        self._pending[hint.kind, hint.id] = hint
        self.woken.set()

    def take(self) -> list[Hint]:
        """What it is to be told now."""
        taken = list(self._pending.values())
        self._pending.clear()
        self.woken.clear()
        return taken


class ChangeHints:
    """All viewers of one gateway, and where their hints come from."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.viewers: set[Viewer] = set()

    def tell(self, kind: HintKind, name: str, action: str = "", status: str = "") -> None:
        """Something of this name has changed."""
        for viewer in self.viewers:
            viewer.note(Hint(kind, name, action, status))

    async def follow(self, stop: asyncio.Event) -> None:
        """A part of the service: hear of jobs and executors."""
        heard = [
            await self._bus.subscribe(subjects.CRON_CHANGED, self._on_job),
            await self._bus.subscribe(f"fairlead.kv.{subjects.BUCKET_EXECUTORS}.>", self._on_executor),
        ]
        await stop.wait()
        for each in heard:
            await each.unsubscribe()

    def _on_job(self, delivery: Delivery) -> None:
        try:
            event = msgspec.json.decode(delivery.data, type=CronEvent)
        except msgspec.DecodeError as error:
            log.warning("cron_event_ignored", error=str(error))
            return
        self.tell("job", event.job_id, event.action, event.status or "")

    def _on_executor(self, delivery: Delivery) -> None:
        self.tell("executor", delivery.subject.rpartition(".")[2])
