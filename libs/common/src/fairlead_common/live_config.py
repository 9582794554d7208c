"""The effective configuration of a running service, kept up to date."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from fairlead_common import subjects
from fairlead_common.buckets import Bucket
from fairlead_common.bus import Bus
from fairlead_common.config import Config, parse_config
from fairlead_common.config.later_keys import without_later_keys
from fairlead_common.errors import InvalidInputError
from fairlead_common.tail import Source, Tail

log = structlog.get_logger()


class LiveConfig:
    """The effective configuration, kept up to date. Read `current` each time it is needed."""

    DOCUMENT = "document"

    def __init__(self, bus: Bus, overrides: Mapping[str, object]) -> None:
        self._bus = bus
        self._overrides = overrides
        self._listeners: list[Callable[[Config], None]] = []
        self.current = parse_config({}, overrides)

    async def load(self) -> Config:
        """Read the stored document once.

        Raises:
            InvalidInputError: the stored document does not fit.
        """
        record = await Bucket(self._bus, subjects.BUCKET_CONFIG).get(self.DOCUMENT)
        if record is not None:
            self.current = self._effective(record.data)
        return self.current

    def on_change(self, listener: Callable[[Config], None]) -> None:
        """Call `listener` with every new configuration."""
        self._listeners.append(listener)

    async def follow(self, stop: asyncio.Event) -> None:
        """A part of a service: take over every change of the document until `stop`."""
        subject = subjects.kv(subjects.BUCKET_CONFIG, self.DOCUMENT)
        source = Source(subjects.kv_stream(subjects.BUCKET_CONFIG), subject, 1, chained=True, latest=True)
        live = f"fairlead.kv.{subjects.BUCKET_CONFIG}.{self.DOCUMENT}"
        async with Tail(self._bus, live, [source], self._route) as tail:
            await tail.follow(stop, lambda _, record: self._apply(record.data))

    def _effective(self, data: bytes) -> Config:
        known, later = without_later_keys(msgspec.json.decode(data), Config)
        if later:
            log.warning("config_of_a_later_version", keys=later[:20])
        return parse_config(known, self._overrides)

    def _route(self, live: str) -> int | None:
        return 0 if live.endswith(f".{self.DOCUMENT}") else None

    def _apply(self, data: bytes) -> None:
        try:
            fresh = self._effective(data)
        except (InvalidInputError, msgspec.DecodeError) as error:
            log.warning("config_ignored", error=str(error))
            return
        if fresh != self.current:
            self.current = fresh
            log.info("config_changed")
            for listener in self._listeners:
                listener(fresh)
