"""Accepted chat completions, so that a request that is sent again finds the run that the first one started.

OpenAI's SDKs repeat a request by themselves after a timeout or a lost connection, and say so in the header
`x-stainless-retry-count`: 0 for the first attempt, then 1, 2, ... Each first attempt leaves a record before
its prompt is stored, so that any gateway finds it, also after the one that accepted it was killed. All
records are created once, never replaced or removed, and expire. They are keys of the bucket `sessions`:

    call.<hash of the request>.<key>    an accepted call: its session, and the key of its prompt
    call.<key>.again-<n>                attempt n belongs to this call and to no other of the same content
    call.<key>.<random>                 someone else asked with the same Idempotency-Key
    call.<key>.first                    the call that an Idempotency-Key was first used for
    call.<key>.ended                    its answer was sent, or its run was stopped
"""

import hashlib
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.errors import ConflictError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import new_id
from fairlead_common.received import Record

KEPT_S: Final = 2 * 3600.0  # longer than a run and the retries of its client
# An answer that was sent longer ago than this has arrived: the same words again are a new request.
LATE_S: Final = 60.0

_ENDED: Final = "ended"
_FIRST: Final = "first"


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
    """

    session: str
    key: str
    own: bool
    start: Start | None = None
    hidden: bool = False
    resumed: Resumed | None = None
    choices: int = 1


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


_call = msgspec.json.Decoder(AcceptedCall)
_ended = msgspec.json.Decoder(_Ended)


def request_hash(parts: Iterable[bytes]) -> str:
    """What tells requests apart: 32 hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()[:32]


class AcceptedCalls:
    """The records of accepted calls."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, subjects.BUCKET_SESSIONS)

    async def accept(self, request: str, call: AcceptedCall) -> Visit:
        """Record a call before its prompt is stored."""
        seq = await self._create(f"call.{request}.{call.key}", msgspec.json.encode(call))
        return Visit(call.key, seq)

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
            return call, Visit(call.key, seq)
        return None

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
        return Visit(call, await self._create(f"call.{call}.{new_id()}", b"{}"))

    async def was_taken_up(self, visit: Visit) -> bool:
        """Whether someone asked for the same answer after this visitor."""
        records = await self._read(f"call.{visit.call}.*", after=visit.seq)
        marks = (f".{_ENDED}", f".{_FIRST}")
        return any(not record.subject.endswith(marks) for record in records)

    async def end(self, visit: Visit) -> None:
        """Record that no one has to come back for the answer."""
        ended = _Ended(time.time_ns() // 1_000_000)
        try:
            await self._create(f"call.{visit.call}.{_ENDED}", msgspec.json.encode(ended))
        except ConflictError:
            return  # the answer was sent to an earlier visitor too

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
