"""Keeps the table up to the bucket `jobs` and to the configuration."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from fairlead_common import subjects
from fairlead_common.bus import Bus, Record
from fairlead_common.config import Config
from fairlead_common.errors import RetryableError
from fairlead_common.tail import Source, Tail
from fairlead_scheduler.clock import Clock
from fairlead_scheduler.heartbeats import plant
from fairlead_scheduler.table import Table, Timing

log = structlog.get_logger()

_PREFIX = f"$KV.{subjects.BUCKET_JOBS}."
_decoder = msgspec.json.Decoder(Timing)


class Watching:
    """A part of every scheduler."""

    def __init__(self, bus: Bus, table: Table, clock: Clock, changed: Callable[[], None]) -> None:
        self._bus = bus
        self._table = table
        self._clock = clock
        self._changed = changed
        self._tail: Tail | None = None
        self.ready = asyncio.Event()

    @property
    def revision(self) -> int:
        """How far the table follows the bucket."""
        return self._tail.seen[0] if self._tail is not None and not self._tail.has_news else self._taken

    _taken = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Take over all jobs, then every change, until `stop`."""
        source = Source(f"KV_{subjects.BUCKET_JOBS}", f"{_PREFIX}>", 1)
        live = f"fairlead.kv.{subjects.BUCKET_JOBS}.>"
        async with Tail(self._bus, live, [source], lambda _: 0) as tail:
            self._tail = tail
            started = asyncio.get_running_loop().time()
            while not stop.is_set():
                try:
                    news = await tail.take()
                except RetryableError as error:
                    log.warning("table_behind", error=str(error))
                    continue
                for _, record in news:
                    self._note(record)
                self._taken = tail.seen[0]
                if not self.ready.is_set():
                    took_ms = round((asyncio.get_running_loop().time() - started) * 1000)
                    log.info("jobs_loaded", jobs=len(self._table), duration_ms=took_ms)
                    self.ready.set()
                if news:
                    self._changed()
                await tail.wait(1.0)

    def look(self) -> None:
        """Look again now."""
        if self._tail is not None:
            self._tail.catch_up_soon()

    def _note(self, record: Record) -> None:
        job = record.headers.get("Nats-Subject", record.subject).removeprefix(_PREFIX)
        try:
            timing = _decoder.decode(record.data)
        except msgspec.DecodeError as error:
            if b'"deleted":true' not in record.data[:64]:
                log.warning("job_unreadable", job=job, error=str(error))
            self._table.remove(job)
            return
        self._table.put(job, timing, record.seq)

    def configured(self, config: Config) -> None:
        """Take over the configuration."""
        self._table.default_tz = config.cron.timezone
        self._table.default_stagger_ms = round(config.cron.stagger_s * 1000)
        plant(self._table, config, self._clock.now_ms())
        self._changed()
