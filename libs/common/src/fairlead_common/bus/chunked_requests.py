"""Requests to executors that are too large for one message: parts beside them, for that host alone."""

import hashlib
from typing import Final

from fairlead_common.bus.bus import Bus
from fairlead_common.errors import BadMessageError, BusUnavailableError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import is_id

PART_BYTES: Final = 512 * 1024
MAX_PARTS: Final = 512


async def write_parts(bus: Bus, host: str, call: str, data: bytes) -> str:
    """The value of `Fairlead-Parts` for `data`, whose parts are stored once this returns. Safe to repeat.

    The parts are named by what they hold: those that an owner left behind who never sent its request, with
    another token in it, are in no one's way.
    """
    tag = hashlib.sha256(data).hexdigest()[:32]
    count = -(-len(data) // PART_BYTES)
    for number in range(count):
        part = data[number * PART_BYTES : (number + 1) * PART_BYTES]
        await bus.create(subjects.TOOLS, subjects.tool_part(host, call, tag, number), part)
    return f"{tag}:{count}"


async def read_parts(bus: Bus, host: str, call: str, said: str) -> bytes:
    """The bytes that `write_parts` was given.

    Args:
        said: value of the header `Fairlead-Parts`.

    Raises:
        BadMessageError: it is none that can be.
        BusUnavailableError: a part is not there.
    """
    tag, _, count = said.partition(":")
    if not is_id(tag) or not count.isdecimal() or not 0 < int(count) <= MAX_PARTS:
        raise BadMessageError(f"{subjects.H_PARTS}: cannot be {said[:80]!r}")
    parts = []
    for number in range(int(count)):
        record = await bus.last(subjects.TOOLS, subjects.tool_part(host, call, tag, number))
        if record is None:
            raise BusUnavailableError(f"part {number} of the request {call} is not there")
        parts.append(record.data)
    return b"".join(parts)
