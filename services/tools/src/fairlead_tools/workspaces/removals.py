"""Removes the workspaces of sessions that were deleted, whenever this host is up.

The agents leave a key `gone.<host>.<workspace>` in the bucket `workspaces`, and it stays until the workspace
is removed. Nothing is removed for any other reason: not because a session is not known.
"""

import asyncio

import structlog

from fairlead_common import subjects
from fairlead_common.buckets import Bucket
from fairlead_common.bus import Bus
from fairlead_common.errors import FairleadError, InvalidInputError
from fairlead_tools.workspaces.session_workspaces import SessionWorkspaces

log = structlog.get_logger()

PERIOD_S = 5.0
SWEEP_S = 60.0


class Removals:
    """A part of the service."""

    def __init__(self, bus: Bus, host: str, sessions: SessionWorkspaces) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, subjects.BUCKET_WORKSPACES)
        self._filter = subjects.workspaces_gone(host)
        self._sessions = sessions

    async def run(self, stop: asyncio.Event) -> None:
        """Look again and again until `stop`."""
        loop = asyncio.get_running_loop()
        swept_at = loop.time()
        while not stop.is_set():
            try:
                await self._remove_all()
                if loop.time() - swept_at > SWEEP_S:
                    swept_at = loop.time()
                    await self._sessions.sweep()
            except (FairleadError, OSError) as error:
                log.warning("removal_failed", error=str(error))
            try:
                async with asyncio.timeout(PERIOD_S):
                    await stop.wait()
            except TimeoutError:
                continue
        self._sessions.close()

    async def _remove_all(self) -> None:
        async for record in self._bus.read(self._bucket.stream, self._filter, limit=64):
            if "KV-Operation" in record.headers:
                continue
            key = record.subject.removeprefix(f"$KV.{self._bucket.name}.")
            try:
                await self._sessions.remove(key.rpartition(".")[2])
            except InvalidInputError as error:  # of one must not keep us from the others
                log.warning("removal_failed", key=key, error=str(error))
                continue
            await self._bucket.delete(key)
