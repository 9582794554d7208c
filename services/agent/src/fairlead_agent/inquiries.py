"""What other services and the command line ask the agent service."""

import asyncio
import contextlib

import msgspec

from fairlead_common import subjects
from fairlead_common.bus import Bus
from fairlead_common.errors import FairleadError
from fairlead_common.live_config import DocumentInEffect, LiveConfig


class Inquiries:
    """Answers on `fairlead.agent.configuration`; any one agent worker answers."""

    def __init__(self, bus: Bus, config: LiveConfig) -> None:
        self._bus = bus
        self._config = config
        self._asked: asyncio.Queue[str] = asyncio.Queue()

    async def run(self, stop: asyncio.Event) -> None:
        """A part of the service: answer until `stop`."""
        asked = await self._bus.subscribe(
            subjects.AGENT_CONFIGURATION, lambda each: self._asked.put_nowait(each.reply), queue="agents"
        )
        async with asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(self._answer_all())
            await stop.wait()
            answering.cancel()
        await asked.unsubscribe()

    async def _answer_all(self) -> None:
        while True:
            reply = await self._asked.get()
            if reply and self._config.is_known:
                found = DocumentInEffect(self._config.revision, self._config.document, self._config.overrides)
                with contextlib.suppress(FairleadError):  # whoever asked asks again
                    await self._bus.emit(reply, msgspec.json.encode(found))
