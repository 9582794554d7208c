"""The log of a session as clients read it: entries with their sequence, forwards or backwards."""

from collections.abc import AsyncIterator, Iterable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from fairlead_common.bus import Bus
from fairlead_common.bus.generation_reads import generation_start
from fairlead_common.bus.objects import Objects
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import check_id
from fairlead_common.received import Record
from fairlead_common.session_log.records import Placed
from fairlead_gateway.gateway import answering, gateway_of
from fairlead_gateway.http.problems import JSON
from fairlead_gateway.http.request_parsing import MAX_SEQ, check_parameters, one, whole_number
from fairlead_gateway.sessions.stored_entries import placed

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
    async with answering(READ_WITHIN_S), gateway.large_answers:
        await gateway.must_exist(session)
        start = await generation_start(gateway.bus, session)
        after = max(start, whole_number(request, "after", 0, least=0, most=MAX_SEQ))
        if backwards:
            before = whole_number(request, "before", 0, least=0, most=MAX_SEQ)
            found = await read_before(gateway.bus, session, before, limit + 1, after=after)
            pages, more = await _within(gateway.objects, reversed(found), limit)
            pages.reverse()
            cursor = pages[0][0] if more else None
        else:
            found, more = await read_after(gateway.bus, session, after, limit)
            pages, cut = await _within(gateway.objects, found, limit)
            cursor = pages[-1][0] if more or cut else None
        shown = b",".join(entry for _, entries in pages for entry in entries)
    body = b'{"entries":[%s],"next":%s}' % (shown, b"null" if cursor is None else b"%d" % cursor)
    return Response(body, media_type=JSON)


async def _within(
    objects: Objects, records: Iterable[Record], limit: int
) -> tuple[list[tuple[int, list[bytes]]], bool]:
    """Sequence and entries of the first records, at most `limit` entries; and whether records were left out.

    No record is divided, so that the next page begins with another one.
    """
    pages: list[tuple[int, list[bytes]]] = []
    left = limit
    for record in records:
        entries = await with_place(objects, record)
        if pages and len(entries) > left:
            return pages, True
        pages.append((record.seq, entries))
        left -= len(entries)
    return pages, False


async def with_place(objects: Objects, record: Record) -> list[bytes]:
    """The entries with their sequence, and their index where the record holds several, as JSON."""
    return [_with_place(each) for each in await placed(objects, record)]


def _with_place(entry: Placed) -> bytes:
    seq, number, data = entry
    about = b'"seq":%d' % seq if number is None else b'"seq":%d,"index":%d' % (seq, number)
    data = data.lstrip()
    return b"{%s,%s" % (about, data[1:]) if data[:1] == b"{" else b"{%s}" % about


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
