"""What may be written to logs: chosen formats of records, and entries, that every live service reads.

Readers come one release before writers: this release reads records of several entries, and writes them only
where `FAIRLEAD_LOG_FORMAT=2` asks for it. Services announce what they read with their other metadata (see
`process.register`). An agent that cannot read a record lets the session go; a gateway, a scheduler and a page
of the version before pass over it, so they have to be gone before the format is chosen.
"""

import asyncio
from typing import Final

import structlog

from fairlead_common.bus import Bus
from fairlead_common.bus.requests import MicroInfo, discover
from fairlead_common.errors import FairleadError
from fairlead_common.session_log.records import ONE_ENTRY, READ_FORMATS

log = structlog.get_logger()

READERS: Final = ("fairlead-agent", "fairlead-gateway", "fairlead-scheduler", "fairlead-webui")
METADATA: Final = "log_formats"
ENTRIES: Final = "log_entries"
TOOL_LIST: Final = "tool_list"
HOOK_DECISION: Final = "hook_decision"
HOOK_CONTEXT: Final = "hook_context"
# Types of entries that versions before this one do not read.
READ_ENTRIES: Final = frozenset({TOOL_LIST, HOOK_DECISION, HOOK_CONTEXT})
PERIOD_S: Final = 10.0
FRESH_S: Final = 30.0  # what was heard longer ago does not count
OLDER_S: Final = 60.0  # for so long a service counts that reads less, after it was heard last


def announced() -> dict[str, str]:
    """What a service of this version announces."""
    return {
        METADATA: ",".join(map(str, sorted(READ_FORMATS))),
        ENTRIES: ",".join(sorted(READ_ENTRIES)),
    }


def read_by(info: MicroInfo) -> frozenset[int | str]:
    """The formats and the newer types of entries that a service reads; format 1 if it announces none."""
    formats, entries = (_parts(info, name) for name in (METADATA, ENTRIES))
    found = frozenset(int(each) for each in formats if len(each) < 9 and each.isascii() and each.isdecimal())
    return (found or frozenset({ONE_ENTRY})) | frozenset(entries)


def _parts(info: MicroInfo, name: str) -> list[str]:
    told = (info.metadata or {}).get(name, "")
    return [each for each in told.split(",") if each] if isinstance(told, str) else []


class LogReaders:
    """Keeps in mind what the live services read."""

    def __init__(self, bus: Bus, chosen: int = ONE_ENTRY) -> None:
        """Ask nobody yet.

        Args:
            chosen: the latest format that may be written.
        """
        self._bus = bus
        self._chosen = chosen
        self._heard_at = -FRESH_S
        self._seen: dict[str, tuple[float, frozenset[int | str]]] = {}  # by instance: when, and what it reads

    async def follow(self, stop: asyncio.Event) -> None:
        """A part of a service that writes logs: ask again and again."""
        while not stop.is_set():
            try:
                await self.ask()
            except FairleadError as error:
                log.debug("log_readers_unknown", error=str(error))
            try:
                async with asyncio.timeout(PERIOD_S):
                    await stop.wait()
            except TimeoutError:
                continue

    async def ask(self) -> None:
        """Ask all readers once.

        Raises:
            FairleadError: they could not be asked.
        """
        answers = await asyncio.gather(*(discover(self._bus, name=name) for name in READERS))
        now = asyncio.get_running_loop().time()
        for info in (each for some in answers for each in some):
            self._seen[info.id] = now, read_by(info)
        self._seen = {each: seen for each, seen in self._seen.items() if now - seen[0] < OLDER_S}
        if any(answers):
            self._heard_at = now

    def may_write(self, kind: int | str) -> bool:
        """Whether every service that was heard lately reads it.

        Args:
            kind: a format of records, which must be chosen as well, or one of `READ_ENTRIES`.
        """
        if kind == ONE_ENTRY:
            return True
        if isinstance(kind, int) and kind > self._chosen:
            return False
        fresh = asyncio.get_running_loop().time() - self._heard_at < FRESH_S
        return fresh and all(kind in reads for _, reads in self._seen.values())
