"""Tells hosts which workspaces of deleted sessions they are to remove, and forgets those that are removed.

The keys `gone.<host>.<workspace>` of the bucket `workspaces` are the truth; executors may not touch the
bucket, and each host hears of its own workspaces only, since its name is in the subject that it may ask on.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket, is_marker
from fairlead_common.errors import FairleadError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import check_id
from fairlead_common.received import Delivery

log = structlog.get_logger()

AT_ONCE: Final = 64
QUEUE: Final = "agents"


class WorkspaceGcResponder:
    """A part of every agent worker; one of them answers each request."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, subjects.BUCKET_WORKSPACES)
        self._asked: asyncio.Queue[Delivery] = asyncio.Queue()

    async def run(self, stop: asyncio.Event) -> None:
        """Answer until `stop`."""
        heard = [
            await self._bus.subscribe(subject, self._asked.put_nowait, queue=QUEUE)
            for subject in ("fairlead.workspace.*.gone", "fairlead.workspace.*.removed")
        ]
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(self._answer_all(), name="removals")
            await stop.wait()
            for each in heard:
                await each.unsubscribe()
            answering.cancel()

    async def _answer_all(self) -> None:
        while True:
            delivery = await self._asked.get()
            try:
                answer = await self._answer(delivery)
            except FairleadError as error:  # the host asks again
                log.warning("removal_not_answered", subject=delivery.subject, error=str(error))
                continue
            if delivery.reply:
                await self._bus.emit(delivery.reply, answer)

    async def _answer(self, delivery: Delivery) -> bytes:
        host, verb = delivery.subject.split(".")[2:4]
        if verb == "removed":
            workspace = check_id(delivery.data.decode("utf-8", "replace"), "workspace")
            await self._bucket.forget(subjects.workspace_gone(host, workspace))  # it is only ever created
            return b"null"
        prefix = subjects.workspaces_gone(host)
        records = self._bus.read(self._bucket.stream, prefix, limit=AT_ONCE)
        names = [record.subject.rpartition(".")[2] async for record in records if not is_marker(record)]
        return msgspec.json.encode(names)
