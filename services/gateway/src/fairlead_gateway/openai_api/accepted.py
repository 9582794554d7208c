"""Accepted chat completions, so that a request that is sent again finds the run that the first one started.

OpenAI's SDKs repeat a request by themselves after a timeout or a lost connection, and say so in the header
`x-stainless-retry-count`: 0 for the first attempt, then 1, 2, ... Others repeat it without a word: there the
same bytes are a retry if the connection of the first request was lost before it was answered, as it is when a
gateway is killed. Each first attempt leaves a record before its prompt is stored; any gateway finds it. All
records are created once, never replaced or removed, and expire. They are keys of the bucket `sessions`:

    call.<hash of the request>.<key>    an accepted call: its session, and the key of its prompt
    call.<key>.again-<n>                attempt n belongs to this call and to no other of the same content
    call.<key>.after-<sequence>         a request took up the call of that record, whose connection was lost
    call.<key>.<random>                 someone else asked with the same Idempotency-Key
    call.<key>.first                    the call that an Idempotency-Key was first used for
    call.<key>.ended                    its answer was sent, or its run was stopped
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.errors import ConflictError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import new_id
from fairlead_common.received import Record
from fairlead_gateway.openai_api.waiting_clients import WaitingClients

KEPT_S: Final = 2 * 3600.0  # longer than a run and the retries of its client
# An answer that was sent longer ago than this has arrived: the same words again are a new request.
LATE_S: Final = 60.0

_ENDED: Final = "ended"
_FIRST: Final = "first"
_MARKS: Final = (f".{_ENDED}", f".{_FIRST}")


class Start(msgspec.Struct, frozen=True):
    """How the session of a call begins: as `origin` was up to `entry`.

    Fields:
        messages: of the request, that this stands for.
    """

    origin: str
    entry: str
    messages: int


class Resumed(msgspec.Struct, frozen=True):
    """The answer that a call of results of the client's tools goes on with.

    Fields:
        prompt: sequence of the mail that it is about. seq: of the last record that the client was told of.
        function: by which a client of the old `functions` knows the first of the `calls`; it knows no others.
    """

    prompt: int
    seq: int
    function: str = ""
    calls: list[str] = []


class AcceptedCall(msgspec.Struct, frozen=True):
    """Where the prompt of a call is stored.

    Fields:
        own: in a session that was made for calls, and no one else knows.
        start: how that begins, if it is new and does not begin with what the client sent.
        hidden: see `KnownAnswer`, of what the session has before the prompt.
        resumed: it brings results that the session waits for.
        choices: how many answers are asked for; see `choices.py`.
        gateway: the process at which its client waits, if a request that does not say so may repeat it.
    """

    session: str
    key: str
    own: bool
    start: Start | None = None
    hidden: bool = False
    resumed: Resumed | None = None
    choices: int = 1
    gateway: str = ""


class Visit(NamedTuple):
    """One request of a client for the answer to a call.

    Fields:
        call: under which its visits are recorded.
        seq: sequence of its own record; a later visitor has a higher one.
    """

    call: str
    seq: int


class _Ended(msgspec.Struct, frozen=True):
    """When a call ended: milliseconds since 1970, UTC."""

    at: int


class _After(msgspec.Struct, frozen=True):
    """Where the client waits that took up a call; also read from an `AcceptedCall`."""

    gateway: str = ""


_call = msgspec.json.Decoder(AcceptedCall)
_ended = msgspec.json.Decoder(_Ended)
_after = msgspec.json.Decoder(_After)


def request_hash(parts: Iterable[bytes]) -> str:
    """What tells requests apart: 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:32]


class AcceptedCalls:
    """The records of accepted calls, as one request uses them. To be made in the task that answers it."""

    def __init__(self, bus: Bus, waiting: WaitingClients) -> None:
        self._bus = bus
        self._waiting = waiting
        self._bucket = Bucket(bus, subjects.BUCKET_SESSIONS)
        self._request = asyncio.current_task()

    async def accept(self, request: str, call: AcceptedCall) -> Visit:
        """Record a call before its prompt is stored."""
        call = msgspec.structs.replace(call, gateway=self._waiting.boot)
        seq = await self._create(f"call.{request}.{call.key}", msgspec.json.encode(call))
        return self._visit(call.key, seq)

    async def find(self, request: str, attempt: int) -> tuple[AcceptedCall, Visit] | None:
        """The call that attempt number `attempt` (1, 2, ...) of a request belongs to; None if there is none.

        Each call is found once by each number: of several equal requests at the same time each gets one.
        """
        for record in reversed(await self._read(f"call.{request}.*")):
            call = _call.decode(record.data)
            if await self._is_over(call.key):
                continue
            try:
                seq = await self._create(f"call.{call.key}.again-{attempt}", new_id().encode())
            except ConflictError:
                continue
            return call, self._visit(call.key, seq)
        return None

    async def find_lost(
        self, request: str, may_be: Callable[[AcceptedCall, float], bool]
    ) -> tuple[AcceptedCall, Visit] | None:
        """A call of the same request whose client lost its connection before the answer, if any.

        Each lost connection is found once: of several equal requests at the same time each gets another call.

        Args:
            may_be: whether the request may be about this call, which was last asked for at that time, in
                seconds since 1970.

        Raises:
            BusUnavailableError: a gateway does not say whether its client still waits.
        """
        for record in reversed(await self._read(f"call.{request}.*")):
            call = _call.decode(record.data)
            visits = [record, *await self._read(f"call.{call.key}.*")]
            last = max(visits, key=lambda each: each.seq)
            if last.subject.endswith(_MARKS) or any(each.subject.endswith(f".{_ENDED}") for each in visits):
                continue
            if not may_be(call, last.stored_s) or not await self._is_lost(last):
                continue
            key = f"call.{call.key}.after-{last.seq}"
            try:
                seq = await self._create(key, msgspec.json.encode(_After(self._waiting.boot)))
            except ConflictError:
                continue
            return call, self._visit(call.key, seq)
        return None

    async def _is_lost(self, visit: Record) -> bool:
        try:
            boot = _after.decode(visit.data).gateway
        except msgspec.DecodeError:  # of a request that counts its attempts, which sends the count again
            return False
        return bool(boot) and await self._waiting.is_lost(boot, visit.seq)

    async def first(self, call: str) -> AcceptedCall | None:
        """What an Idempotency-Key was first used for; None: it is new."""
        record = await self._bucket.get(f"call.{call}.{_FIRST}")
        return None if record is None else _call.decode(record.data)

    async def accept_first(self, call: str, accepted: AcceptedCall) -> AcceptedCall:
        """What an Idempotency-Key was first used for; this, if it is new. Before its prompt is stored."""
        try:
            await self._create(f"call.{call}.{_FIRST}", msgspec.json.encode(accepted))
        except ConflictError:
            return await self.first(call) or accepted
        return accepted

    async def visit(self, call: str) -> Visit:
        """Record that a client asks for the answer to a call that it knows by its Idempotency-Key."""
        return self._visit(call, await self._create(f"call.{call}.{new_id()}", b"{}"))

    async def was_taken_up(self, visit: Visit) -> bool:
        """Whether someone asked for the same answer after this visitor."""
        records = await self._read(f"call.{visit.call}.*", after=visit.seq)
        return any(not record.subject.endswith(_MARKS) for record in records)

    def leave(self, visit: Visit) -> None:
        """Note that the client of this visit is gone: a request that repeats it may take up the call."""
        self._waiting.leave(visit.seq)

    async def end(self, visit: Visit) -> None:
        """Record that no one has to come back for the answer."""
        ended = _Ended(time.time_ns() // 1_000_000)
        try:
            await self._create(f"call.{visit.call}.{_ENDED}", msgspec.json.encode(ended))
        except ConflictError:
            return  # the answer was sent to an earlier visitor too

    def _visit(self, call: str, seq: int) -> Visit:
        if self._request is not None:
            self._waiting.add(seq, self._request)
        return Visit(call, seq)

    async def _is_over(self, key: str) -> bool:
        record = await self._bucket.get(f"call.{key}.{_ENDED}")
        if record is None:
            return False
        return time.time_ns() // 1_000_000 - _ended.decode(record.data).at > LATE_S * 1000

    async def _create(self, key: str, value: bytes) -> int:
        return await self._bucket.create(key, value, ttl_s=KEPT_S)

    async def _read(self, keys: str, *, after: int = 0) -> list[Record]:
        subject = f"$KV.{subjects.BUCKET_SESSIONS}.{keys}"
        return [each async for each in self._bus.read(self._bucket.stream, subject, start=after + 1)]
