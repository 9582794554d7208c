"""The usage by day, agent, model and user, brought up to what is stored a few records at a time.

Only the worker that sweeps does this, but two at once do no harm: a day's value says up to which record it
goes and is replaced only if nobody else replaced it. If the bucket is lost it is made again from the logs
that are still there.
"""

import asyncio
from collections import defaultdict
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from fairlead_agent.models.pricing import micro
from fairlead_agent.projections.plain_usage import PlainUsage
from fairlead_agent.projections.usage_days import RowsOfRecords, add_rows, keep_position
from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.bus.objects import Objects
from fairlead_common.errors import BadMessageError, NotFoundError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.branch_entries import CompactionEntry, CompactionPreparedEntry
from fairlead_common.protocol.content import AssistantMessage, Usage
from fairlead_common.protocol.entries import BudgetSettlementEntry, Entry, MessageEntry
from fairlead_common.protocol.usage import POSITION, UsagePosition, UsageRow, row_of
from fairlead_common.received import Record
from fairlead_common.session_log.records import entries_in

log = structlog.get_logger()

PERIOD_S: Final = 5.0
WITHIN_S: Final = 2.0
NOTHING: Final = Usage()
AT_ONCE: Final = 1000  # records between two writes
_SIGNS: Final = (b'"assistant"', b'"budget_settlement"', b'"compaction"')  # in what counts


class UsageWriter:
    """Brings the usage up to the logs, and to the records of calls outside of sessions."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, subjects.BUCKET_USAGE)
        self._plain = PlainUsage(bus, self._bucket)
        self._objects = Objects(bus)
        self._not_before_s = 0.0  # by the clock of the loop

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
                while await self.take_over() or await self._plain.take_over():
                    pass
        except TimeoutError:  # what was written stays, and is not counted again
            log.info("usage_behind", within_s=WITHIN_S)

    async def take_over(self) -> bool:
        """Take over the next records; whether there may be more.

        Raises:
            BusUnavailableError: NATS is away.
        """
        stored = await self._bucket.get(POSITION)
        position = msgspec.json.decode(stored.data, type=UsagePosition) if stored else UsagePosition()
        days: dict[str, RowsOfRecords] = defaultdict(list)
        records, last = 0, position.seq
        async for record in self._bus.read(
            subjects.SESSIONS, subjects.ALL_LOGS, start=position.seq + 1, limit=AT_ONCE
        ):
            records, last = records + 1, record.seq
            for day, row in await self._rows(record):
                days[day].append((record.seq, row))
        for day, found in days.items():
            await add_rows(self._bucket, day, found)
        if last > position.seq:
            position = UsagePosition(seq=last)
            await keep_position(self._bucket, POSITION, position, stored.seq if stored else 0)
        return records == AT_ONCE

    async def _rows(self, record: Record) -> list[tuple[str, UsageRow]]:
        """What a record adds, by day."""
        is_large = subjects.H_OBJECT in record.headers
        if not is_large and not any(sign in record.data for sign in _SIGNS):
            return []
        try:
            data = await self._objects.unpack(record.data, record.headers)
            entries = [each.read() for each in entries_in(record.seq, data, record.headers)]
        except (BadMessageError, NotFoundError) as error:  # its owner keeps it as a dead letter
            log.debug("usage_record_passed_over", seq=record.seq, error=str(error))
            return []
        return [(_day(entry.ts), row) for entry in entries if (row := usage_of(entry)) is not None]


def usage_of(entry: Entry) -> UsageRow | None:
    """What an entry adds to the usage; None: nothing."""
    match entry:
        case MessageEntry(message=AssistantMessage() as message):
            cost = message.cost_micro_usd
            row = UsageRow(agent=entry.agent, model=message.model, user=entry.user)
            return row_of(message.usage, cost if cost is not None else micro(message.usage.cost_usd), row)
        case CompactionEntry(usage=usage, by=by) | CompactionPreparedEntry(usage=usage, by=by) if (
            by and usage != NOTHING and not entry.counted
        ):
            return row_of(usage, micro(usage.cost_usd), UsageRow(model=by))
        case BudgetSettlementEntry(usage=usage) if usage is not None or not entry.known:
            unknown = 0 if entry.known else entry.micro_usd
            row = UsageRow(agent=entry.agent, model=entry.model, user=entry.user, unknown_micro_usd=unknown)
            return row if usage is None else row_of(usage, entry.micro_usd - unknown, row)
        case _:
            return None


def _day(ts: int) -> str:
    return datetime.fromtimestamp(ts / 1000, UTC).date().isoformat()
