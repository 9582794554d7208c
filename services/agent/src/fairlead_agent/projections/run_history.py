"""The list of runs, brought up to the logs a few records at a time.

Only the worker that sweeps does this, but two at once do no harm: a record is create-only. Where to go on is
told by the last record that is stored, so a list that was lost is made again from the logs that are there.
"""

import asyncio
from typing import Final

import msgspec
import structlog

from fairlead_common.bus import Bus
from fairlead_common.bus.objects import Objects
from fairlead_common.errors import BadMessageError, ConflictError, NotFoundError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.entries import RunEndEntry
from fairlead_common.protocol.run_history import RunRecord, record_of, run_subject
from fairlead_common.received import Record
from fairlead_common.session_log.records import entries_in

log = structlog.get_logger()

PERIOD_S: Final = 2.0
WITHIN_S: Final = 2.0
AT_ONCE: Final = 1000  # records of logs
_SIGN: Final = b'"run_end"'

_decode = msgspec.json.Decoder(RunRecord).decode


class RunHistory:
    """Writes the records of runs that ended."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._objects = Objects(bus)
        self._position: int | None = None  # in the stream SESSIONS; None: not known yet
        self._not_before_s = 0.0  # by the clock of the loop

    def begin(self) -> None:
        """Find out anew where to go on: this worker has just begun to sweep."""
        self._position, self._not_before_s = None, 0.0

    async def look(self) -> None:
        """Take over the next records, if it is time, and for a few seconds at most: sweeping waits for it.

        Raises:
            BusUnavailableError: NATS is away; the same records are looked at next time.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._not_before_s:
            return
        self._not_before_s = now_s + PERIOD_S
        try:
            async with asyncio.timeout(WITHIN_S):
                while await self.take_over():
                    pass
        except TimeoutError:
            log.info("run_history_behind", within_s=WITHIN_S)

    async def take_over(self) -> bool:
        """Take over the next records; whether there may be more.

        Raises:
            BusUnavailableError: NATS is away.
        """
        if self._position is None:
            last = await self._bus.last(subjects.RUN_HISTORY, subjects.ALL_RUNS)
            # The record may hold several ends, and a kill may have come between them: it is read once more.
            self._position = _decode(last.data).seq - 1 if last is not None else 0
        records = 0
        async for record in self._bus.read(
            subjects.SESSIONS, subjects.ALL_LOGS, start=self._position + 1, limit=AT_ONCE
        ):
            records += 1
            for run in await self._runs(record):
                try:
                    await self._bus.create(subjects.RUN_HISTORY, run_subject(run), msgspec.json.encode(run))
                except ConflictError:  # a later version wrote it, with more in it
                    log.debug("run_listed_already", run=run.run_id)
            self._position = record.seq
        return records == AT_ONCE

    async def _runs(self, record: Record) -> list[RunRecord]:
        if subjects.H_OBJECT not in record.headers and _SIGN not in record.data:
            return []
        session = subjects.parse_session(record.subject).session
        try:
            data = await self._objects.unpack(record.data, record.headers)
            entries = [each.read() for each in entries_in(record.seq, data, record.headers)]
        except (BadMessageError, NotFoundError) as error:  # its owner keeps it as a dead letter
            log.debug("run_passed_over", seq=record.seq, error=str(error))
            return []
        ends = (entry for entry in entries if isinstance(entry, RunEndEntry))
        return [run for end in ends if (run := record_of(session, record.seq, end)) is not None]
