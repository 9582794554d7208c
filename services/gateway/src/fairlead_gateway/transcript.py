"""The log of a session as clients read it: entries with their sequence, forwards or backwards."""

from collections.abc import AsyncIterator
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import Response

from fairlead_common import subjects
from fairlead_common.bus import Bus, Record
from fairlead_common.errors import NotFoundError
from fairlead_common.generations import generation_start
from fairlead_common.ids import check_id
from fairlead_common.objects import Objects
from fairlead_gateway.bodies import MAX_SEQ, check_parameters, one, whole_number
from fairlead_gateway.gateway import answering, gateway_of
from fairlead_gateway.problems import JSON

log = structlog.get_logger()

MAX_ENTRIES: Final = 1000
MAX_BYTES: Final = 16 << 20  # of one answer, about
READ_WITHIN_S: Final = 25.0
_FIRST_WINDOW: Final = 512


async def entries(request: Request) -> Response:
    """Entries after a sequence, or the last ones before it."""
    check_parameters(request, "after", "before", "limit")
    gateway = gateway_of(request)
    session = check_id(request.path_params["session"], "session")
    backwards = one(request, "before") is not None
    limit = whole_number(request, "limit", 200 if backwards else MAX_ENTRIES, least=1, most=MAX_ENTRIES)
    async with answering(READ_WITHIN_S):
        await gateway.must_exist(session)
        start = await generation_start(gateway.bus, session)
        after = max(start, whole_number(request, "after", 0, least=0, most=MAX_SEQ))
        if backwards:
            before = whole_number(request, "before", 0, least=0, most=MAX_SEQ)
            found = await read_before(gateway.bus, session, before, limit + 1, after=after)
            more, found = len(found) > limit, found[-limit:]
            cursor = found[0].seq if more else None
        else:
            found, more = await read_after(gateway.bus, session, after, limit)
            cursor = found[-1].seq if more else None
        shown = [await with_seq(gateway.objects, record) for record in found]
    body = b'{"entries":[%s],"next":%s}' % (b",".join(shown), b"null" if cursor is None else b"%d" % cursor)
    return Response(body, media_type=JSON)


async def payload(objects: Objects, record: Record) -> bytes:
    """The entry that a record holds, also when it lies in the object store; empty when it is lost there."""
    try:
        return await objects.unpack(record.data, record.headers) if record.headers else record.data
    except NotFoundError as error:  # the rest of the log is shown all the same
        log.warning("entry_lost", seq=record.seq, error=str(error))
        return b""


async def with_seq(objects: Objects, record: Record) -> bytes:
    """The entry with its sequence, as JSON."""
    data = (await payload(objects, record)).lstrip()
    return b'{"seq":%d,%s' % (record.seq, data[1:]) if data[:1] == b"{" else b'{"seq":%d}' % record.seq


async def read_after(bus: Bus, session: str, after: int, limit: int) -> tuple[list[Record], bool]:
    """The first records of the log after `after`, and whether there are more."""
    found: list[Record] = []
    size = 0
    if after < MAX_SEQ:
        subject = subjects.session_log(session)
        async for record in bus.read(subjects.SESSIONS, subject, start=after + 1, batch=256, limit=limit + 1):
            if len(found) == limit or size > MAX_BYTES:
                return found, True
            found.append(record)
            size += len(record.data)
    return found, False


async def read_before(bus: Bus, session: str, before: int, limit: int, *, after: int = 0) -> list[Record]:
    """The last records of the log before `before` and after `after`, oldest first.

    Records know no predecessor, and sequences are shared by all sessions: a window of sequences is read
    backwards and widened until enough was found or the beginning of the log is reached.
    """
    subject = subjects.session_log(session)
    last = await bus.last(subjects.SESSIONS, subject)
    if last is None:
        return []
    end = min(before, last.seq + 1)
    begin = end
    if after + 1 < end:
        async for record in bus.read(subjects.SESSIONS, subject, start=after + 1, batch=1, limit=1):
            begin = record.seq
    found: list[Record] = []
    window = _FIRST_WINDOW
    while len(found) < limit and end > begin:
        start = max(begin, end - window)
        found = [record async for record in _between(bus, subject, start, end)] + found
        end, window = start, window * 4
    return found[-limit:]


async def _between(bus: Bus, subject: str, start: int, end: int) -> AsyncIterator[Record]:
    async for record in bus.read(subjects.SESSIONS, subject, start=start, batch=min(512, end - start)):
        if record.seq >= end:
            return
        yield record
