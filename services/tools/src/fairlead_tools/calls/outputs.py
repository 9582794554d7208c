"""What executors store for good: written once, by host, where they can neither read nor replace anything.

Each subject of the stream takes one message, ever. An executor may write under its own host alone, so that
one that was taken over reaches no attachment, no log entry and no output of another host.
"""

from typing import BinaryIO, Final

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.objects import Objects, OutputInfo
from fairlead_common.errors import ConflictError
from fairlead_common.protocol import subjects

PART_BYTES: Final = 512 * 1024


class Outputs(Objects):
    """`Objects` for the executors of one host: they store, and others read."""

    def __init__(self, bus: Bus, host: str) -> None:
        super().__init__(bus)
        self._host = host

    async def _has(self, name: str) -> bool:
        manifest = subjects.output_part(self._host, name, 0)
        return await self._bus.last(subjects.OUTPUTS, manifest) is not None

    async def _store(self, name: str, source: BinaryIO) -> None:
        size = parts = 0
        while part := source.read(PART_BYTES):
            size += len(part)
            parts += 1
            await self._write(subjects.output_part(self._host, name, parts), part)
        info = msgspec.json.encode(OutputInfo(size=size, parts=parts))
        await self._write(subjects.output_part(self._host, name, 0), info)

    async def _write(self, subject: str, data: bytes) -> None:
        try:
            await self._bus.create(subjects.OUTPUTS, subject, data, point="tools.output")
        except ConflictError:  # not what we wrote: readers compare the sum, and find nothing
            return
