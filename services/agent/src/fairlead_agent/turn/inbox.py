"""Input that is too large for the window: a file in the workspace, of which the model is shown the ends.

What is shown is a pure function of the message and the window, so every owner shows the same. The file is
written before the request that names it; writing it again changes nothing.
"""

from collections.abc import Iterable
from typing import Final

import structlog

from fairlead_agent.tools.catalog import Catalog
from fairlead_agent.turn.oversized import oversized_text, path_of
from fairlead_common.protocol.entries import Placement
from fairlead_common.protocol.messages import InboxPart
from fairlead_common.session_log.conversation import Item

log = structlog.get_logger()

PART_BYTES: Final = 256 * 1024


class Inbox:
    """Puts the large inputs of one session into its workspace."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._stored: set[tuple[str, str, str]] = set()  # host, workspace and entry

    async def store(self, items: Iterable[Item], usable: int, place: Placement | None) -> None:
        """Write a file for each of the messages that is too large, if there is a workspace."""
        if place is None:
            return
        for item in items:
            key = (place.host, place.workspace, item.entry_id)
            if key in self._stored or not (text := oversized_text(item.message, usable)):
                continue
            if await self._put(item.entry_id, text.encode("utf-8", "replace"), place):
                self._stored.add(key)

    async def _put(self, entry: str, data: bytes, place: Placement) -> bool:
        path = path_of(entry)
        offset = 0
        while offset < len(data):
            part = InboxPart(
                entry=entry,
                name=path.rpartition("/")[2],
                data=data[offset : offset + PART_BYTES],
                offset=offset,
                size_bytes=len(data),
            )
            stored = await self._catalog.store(place, part)
            if stored < offset + len(part.data):
                log.warning("input_not_stored", entry=entry, host=place.host)
                return False
            offset = stored
        return True
