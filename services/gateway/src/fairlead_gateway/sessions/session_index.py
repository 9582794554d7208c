"""The list of sessions and of pending approvals, in memory, kept up to date from the bucket `sessions`."""

import asyncio
import bisect
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import msgspec
import structlog

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import is_marker
from fairlead_common.bus.tail import Tail, TailSource
from fairlead_common.errors import BadMessageError, BusUnavailableError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.projections import TOMBSTONE, ApprovalSummary, SessionSummary, decode_projection
from fairlead_common.received import Record

log = structlog.get_logger()

_STREAM: Final = subjects.kv_stream(subjects.BUCKET_SESSIONS)
_PREFIX: Final = f"$KV.{subjects.BUCKET_SESSIONS}."
_SETTLED_KEPT: Final = 10_000
HIDDEN: Final = frozenset({"api"})  # sources of sessions that lists leave out unless they are asked for them

_decoder = msgspec.json.Decoder(SessionSummary)


class IndexPage(NamedTuple):
    """A part of the list, newest first; `cursor` is where the next part begins."""

    sessions: list[SessionSummary]
    cursor: str | None


class Index:
    """What the agent service says of sessions and approvals. A cache: it decides nothing.

    Args:
        other: called with the key and value of every other record of the bucket.
        changed: called with the kind and id of what is listed differently now.
    """

    def __init__(
        self,
        bus: Bus,
        other: Callable[[str, bytes], None] = lambda _key, _value: None,
        changed: Callable[[Literal["session", "approval"], str], None] = lambda _kind, _id: None,
    ) -> None:
        self._bus = bus
        self._other = other
        self._changed = changed
        self._sessions: dict[str, bytes] = {}  # as stored: an object each would need five times the memory
        self._order: list[tuple[int, str]] = []  # (updated_at, id), oldest first
        self._updated: dict[str, int] = {}
        self._source: dict[str, str] = {}  # of those that are no ordinary sessions
        self._pinned: set[str] = set()
        self._archived: set[str] = set()
        self._approvals: dict[str, ApprovalSummary] = {}
        self._settled: OrderedDict[str, None] = OrderedDict()
        self.loaded = asyncio.Event()

    async def follow(self, stop: asyncio.Event) -> None:
        """A part of the service: take over every change until `stop`."""
        source = TailSource(_STREAM, f"{_PREFIX}>", 1)
        live = f"fairlead.kv.{subjects.BUCKET_SESSIONS}.>"
        async with Tail(self._bus, live, [source], lambda _: 0) as tail, tail.woken_by(stop):
            done = 0
            while not stop.is_set():
                if not await tail.wait(1.0):
                    continue
                try:
                    news = await tail.take()
                except BusUnavailableError:
                    continue
                for _, record in news:
                    if record.previous is not None and record.seq > done + 1:
                        # Sequences of this stream have no holes on the live tail: something was not heard.
                        tail.seen[0] = done
                        tail.catch_up_soon()
                        break
                    done = max(done, record.seq)
                    self.apply(record)
                else:
                    self.loaded.set()

    def apply(self, record: Record) -> None:
        """Take over one record of the bucket."""
        key = record.subject.removeprefix(_PREFIX)
        data = record.data or (TOMBSTONE if is_marker(record) else b"")
        try:
            found = decode_projection(key, data)
        except BadMessageError as error:
            log.warning("projection_ignored", error=str(error))
            return
        match found:
            case (name, SessionSummary() as summary):
                if summary.deleted and 0 < summary.last_seq < self._last_seq(name):
                    return  # a later session of this name is listed already
                self.forget(name)
                if not summary.deleted:
                    self._list(name, summary, record.data)
                self._changed("session", name)
            case (name, ApprovalSummary() as approval):
                if approval.deleted:
                    self._settle(name)
                else:
                    self._approvals[name] = approval
                self._changed("approval", name)
            case _:
                self._other(key, record.data)

    def expect(self, summary: SessionSummary) -> None:
        """List a session that this gateway made, until the agent service says more of it."""
        if summary.id not in self._sessions:
            self._list(summary.id, summary, msgspec.json.encode(summary))

    def _list(self, name: str, summary: SessionSummary, data: bytes) -> None:
        self._sessions[name] = data
        self._updated[name] = summary.updated_at
        bisect.insort(self._order, (summary.updated_at, name))
        if summary.source:
            self._source[name] = summary.source
        if summary.pinned:
            self._pinned.add(name)
        if summary.archived:
            self._archived.add(name)

    def forget_until(self, name: str, seq: int) -> None:
        """Take a session off the list, unless it began after this sequence."""
        if self._last_seq(name) <= seq:
            self.forget(name)

    def forget(self, name: str) -> None:
        """Take a session off the list."""
        self._source.pop(name, None)
        self._pinned.discard(name)
        self._archived.discard(name)
        if self._sessions.pop(name, None) is not None:
            del self._order[bisect.bisect_left(self._order, (self._updated.pop(name), name))]

    def _last_seq(self, name: str) -> int:
        listed = self.session(name)
        return listed.last_seq if listed else 0

    def _settle(self, name: str) -> None:
        self._approvals.pop(name, None)
        self._settled[name] = None
        if len(self._settled) > _SETTLED_KEPT:
            self._settled.popitem(last=False)

    # -- reading ---------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._sessions)

    def session(self, name: str) -> SessionSummary | None:
        """A session, if it is listed."""
        data = self._sessions.get(name)
        return None if data is None else _decoder.decode(data)

    def page(
        self,
        limit: int,
        before: tuple[int, str] | None,
        query: str,
        source: str | None = "",
        archived: bool | None = False,
    ) -> IndexPage:
        """Sessions that were last changed before `before`, newest first; pinned ones begin the first part.

        Args:
            limit: at most so many; more only of pinned ones.
            source: of those alone; empty: all but those that lists hide; None: all.
            archived: those alone, or none of them; None: all.
        """
        wanted = query.casefold()
        found: list[SessionSummary] = []
        if before is None and not wanted:
            pinned = sorted(((self._updated[name], name) for name in self._pinned), reverse=True)
            chosen = [name for _, name in pinned if self._is_chosen(name, source, archived)]
            found = [_decoder.decode(self._sessions[name]) for name in chosen]
        place = len(self._order) if before is None else bisect.bisect_left(self._order, before)
        while place > 0:
            if len(found) >= limit:
                updated_at, name = (
                    self._order[place] if place < len(self._order) else (self._order[-1][0] + 1, "0")
                )
                return IndexPage(found, f"{updated_at}.{name}")
            place -= 1
            name = self._order[place][1]
            if not self._is_chosen(name, source, archived) or (name in self._pinned and not wanted):
                continue
            summary = _decoder.decode(self._sessions[name])
            if not wanted or wanted in _searched(summary):
                found.append(summary)
        return IndexPage(found, None)

    def _is_chosen(self, name: str, source: str | None, archived: bool | None) -> bool:
        if archived is not None and archived != (name in self._archived):
            return False
        return _is_wanted(self._source.get(name, ""), source)

    def unchanged_since(self, moment: int, source: str) -> list[str]:
        """Idle sessions of a source that were last changed before `moment`, milliseconds since 1970."""
        old = [name for name, of in self._source.items() if of == source and self._updated[name] < moment]
        return [name for name in old if _decoder.decode(self._sessions[name]).status == "idle"]

    def ordinary_unchanged_since(self, moment: int) -> list[SessionSummary]:
        """Ordinary sessions that were last changed before `moment`, oldest first."""
        old = self._order[: bisect.bisect_left(self._order, (moment, ""))]
        return [_decoder.decode(self._sessions[name]) for _, name in old if name not in self._source]

    def approvals(self, session: str | None) -> list[ApprovalSummary]:
        """Pending approvals, of one session or of all, oldest first."""
        found = (a for a in self._approvals.values() if session is None or a.session == session)
        return sorted(found, key=lambda approval: (approval.requested_at, approval.id))

    def approval(self, name: str) -> ApprovalSummary | None:
        """A pending approval."""
        return self._approvals.get(name)

    def was_settled(self, name: str) -> bool:
        """Whether this approval was pending, and is not any more."""
        return name in self._settled


def _is_wanted(source: str, wanted: str | None) -> bool:
    if wanted is None:
        return True
    return source == wanted if wanted else source not in HIDDEN


def _searched(summary: SessionSummary) -> str:
    return f"{summary.title}\n{summary.preview}\n{summary.id}\n{summary.agent}".casefold()
