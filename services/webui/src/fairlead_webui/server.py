"""Answers requests for files. Any number of these share the work."""

import asyncio
from typing import Final

import structlog

from fairlead_common.bus import Bus
from fairlead_common.protocol import subjects
from fairlead_common.received import Delivery
from fairlead_webui.files import Files, answer

log = structlog.get_logger()

QUEUE: Final = "webui"
BACKLOG: Final = 1000  # more than this waiting means that no one waits for the answers any more
DRAIN_S: Final = 5.0


class FileServer:
    """One member of the queue group that listens on `fairlead.webui.file`."""

    def __init__(self, bus: Bus, files: Files) -> None:
        self._bus = bus
        self._files = files
        self._asked: asyncio.Queue[Delivery] = asyncio.Queue(BACKLOG)

    async def run(self, stop: asyncio.Event) -> None:
        """Answer until `stop` is set, and then what was asked before."""
        if not self._files:
            log.warning("application_not_built", hint="make web")
        subscription = await self._bus.subscribe(subjects.WEBUI_FILE, self._note, queue=QUEUE)
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(self._answer_all(), name="webui-files")
            await stop.wait()
            await subscription.unsubscribe()
            async with asyncio.timeout(DRAIN_S):
                await self._asked.join()
            answering.cancel()

    def _note(self, delivery: Delivery) -> None:
        if not delivery.reply or self._asked.full():
            return  # no one waits for it
        self._asked.put_nowait(delivery)

    async def _answer_all(self) -> None:
        while True:
            asked = await self._asked.get()
            reply = answer(self._files, asked.data)
            await self._bus.emit(asked.reply, reply.body, headers=reply.headers)
            self._asked.task_done()
