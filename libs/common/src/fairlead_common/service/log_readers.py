"""Which formats of log records may be written: those that are chosen, and that every live service reads.

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
PERIOD_S: Final = 10.0
FRESH_S: Final = 30.0  # what was heard longer ago does not count
OLDER_S: Final = 60.0  # for so long a service counts that reads less, after it was heard last


def announced() -> dict[str, str]:
    """What a service of this version announces."""
    return {METADATA: ",".join(map(str, sorted(READ_FORMATS)))}


def read_by(info: MicroInfo) -> frozenset[int]:
    """The formats that a service reads; the first alone if it announces none."""
    told = (info.metadata or {}).get(METADATA, "")
    parts = [each for each in told.split(",") if len(each) < 9] if isinstance(told, str) else []
    found = frozenset(int(each) for each in parts if each.isascii() and each.isdecimal())
    return found or frozenset({ONE_ENTRY})


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
        self._seen: dict[str, tuple[float, frozenset[int]]] = {}  # by instance: when, and what it reads

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

    def may_write(self, kind: int) -> bool:
        """Whether it is chosen, and every service that was heard lately reads records of this format."""
        if kind == ONE_ENTRY:
            return True
        if kind > self._chosen:
            return False
        fresh = asyncio.get_running_loop().time() - self._heard_at < FRESH_S
        return fresh and all(kind in formats for _, formats in self._seen.values())
