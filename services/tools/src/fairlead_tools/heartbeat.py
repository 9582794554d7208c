"""Tells the agents that this executor lives, what it offers and how busy it is."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from fairlead_common import subjects
from fairlead_common.buckets import Bucket
from fairlead_common.bus import Bus, Delivery
from fairlead_common.errors import FairleadError
from fairlead_common.messages import ExecutorInfo
from fairlead_common.service import VERSION
from fairlead_tools.config import ExecutorConfig
from fairlead_tools.host_tools import HostTools
from fairlead_tools.sandbox import Sandboxes
from fairlead_tools.specs import BUILT_IN
from fairlead_tools.workspaces import Workspaces

log = structlog.get_logger()

PERIOD_S = 5.0
TTL_S = 15.0


class Heartbeat:
    """A part of the service."""

    def __init__(
        self,
        bus: Bus,
        config: ExecutorConfig,
        workspaces: Workspaces,
        sandboxes: Sandboxes,
        host_tools: HostTools,
        running: Callable[[], int],
    ) -> None:
        self._bus = bus
        self._config = config
        self._workspaces = workspaces
        self._sandboxes = sandboxes
        self._host_tools = host_tools
        self._running = running
        self._asked: asyncio.Queue[Delivery] = asyncio.Queue()

    async def run(self, stop: asyncio.Event) -> None:
        """Write a heartbeat every five seconds, and answer for the instructions of workspaces."""
        host = self._config.host
        asked = await self._bus.subscribe(
            subjects.workspace_instructions(host), self._asked.put_nowait, queue="tools"
        )
        async with asyncio.TaskGroup() as tasks:
            parts = [tasks.create_task(self._beat()), tasks.create_task(self._answer())]
            await stop.wait()
            for part in parts:
                part.cancel()
        await asked.unsubscribe()
        await self._gone()

    async def _beat(self) -> None:
        bucket = Bucket(self._bus, subjects.BUCKET_EXECUTORS)
        while True:
            try:
                await bucket.put(self._key, msgspec.json.encode(self._info()), ttl_s=TTL_S)
            except FairleadError as error:
                log.warning("heartbeat_failed", error=str(error))
                await asyncio.sleep(0.5)
                continue
            await asyncio.sleep(PERIOD_S)

    async def _gone(self) -> None:
        try:
            await Bucket(self._bus, subjects.BUCKET_EXECUTORS).delete(self._key)
        except FairleadError:
            return  # it expires

    @property
    def _key(self) -> str:
        return f"{self._config.host}.{self._config.executor}"

    def _info(self) -> ExecutorInfo:
        return ExecutorInfo(
            executor=self._config.executor,
            host=self._config.host,
            capacity=self._config.capacity,
            running=self._running(),
            sandboxes=self._sandboxes.available(),
            tools=[*BUILT_IN, *(tool.spec for tool in self._host_tools.current().values())],
            workspace_root=str(self._config.workspaces),
            default_workspace=str(self._config.workspace),
            version=VERSION,
        )

    async def _answer(self) -> None:
        while True:
            delivery = await self._asked.get()
            text = await self._workspaces.instructions(delivery.data.decode("utf-8", "replace"))
            if delivery.reply:
                await self._bus.emit(delivery.reply, text.encode())
