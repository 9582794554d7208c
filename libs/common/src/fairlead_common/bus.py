"""The bus: one NATS connection with the guarantees that Fairlead builds on.

Safety comes from two kinds of writes:

- `create`: stored only if nothing is on the subject. Repeating it is harmless for ever.
- `append`: stored only if the last sequence of the subject (or of a wider fence) is the one the
  writer knows. A writer that lost its place is refused by the server.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import msgspec

from fairlead_common import failpoints
from fairlead_common.connection import (
    REQUEST_TIMEOUT_S,
    BusSettings,
    Connection,
    Delivery,
    Headers,
    Subscription,
    delivery_of,
    next_reply,
    replies,
    settings_from_environment,
)
from fairlead_common.errors import (
    BusUnavailableError,
    ConflictError,
    FairleadError,
    NotFoundError,
    StreamFullError,
)
from fairlead_common.subjects import H_OBJECT

__all__ = [
    "INLINE_LIMIT_BYTES",
    "Bus",
    "BusSettings",
    "Delivery",
    "Headers",
    "JetStreamError",
    "Record",
    "Subscription",
    "WrongSequenceError",
    "settings_from_environment",
]

WRITE_DEADLINE_S: Final = 30.0  # how long a safe write is repeated while the server is away
INLINE_LIMIT_BYTES: Final = 512 * 1024  # more than this travels by reference

_WRONG_LAST_SEQUENCE: Final = 10071
_FULL: Final = frozenset({10077, 10023, 10047, 10028})  # stream, server or account limits reached


class WrongSequenceError(FairleadError):
    """The fence of an append moved: somebody else wrote. Nothing was stored."""


class JetStreamError(FairleadError):
    """The server refused an API request. `code` is its `err_code`."""

    def __init__(self, code: int, text: str, subject: str) -> None:
        super().__init__(f"{text} (err_code {code}, {subject})")
        self.code = code


class Record(NamedTuple):
    """One stored message."""

    subject: str
    seq: int
    data: bytes
    headers: Headers
    previous: int | None = None  # last sequence on the same subject before it, on a live tail


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: dict[str, object] | None = None


_ack_decoder = msgspec.json.Decoder(_PubAck)


class Bus(Connection):
    """One connection to NATS and what is stored behind it. Make it with `Bus.connect`."""

    async def publish(
        self,
        subject: str,
        data: bytes,
        headers: Headers | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        point: str = "",
    ) -> int:
        """Store once and return the sequence. Not repeated: after an error it may or may not be stored.

        Args:
            point: the step that this write is, for tests that cut it off (`failpoints.py`).

        Raises:
            StreamFullError: a limit is reached; nothing was stored.
            WrongSequenceError: an expectation in `headers` does not hold; nothing was stored.
            BusUnavailableError: no acknowledgement in time.
        """
        failpoints.passing(point, "before")
        reply = await self.request(subject, data, headers=headers, timeout_s=timeout_s)
        ack = _ack_decoder.decode(reply.data)
        if ack.error is None:
            if failpoints.passing(point, "after"):
                raise BusUnavailableError(f"the connection was lost before {subject} was answered")
            return ack.seq
        code = int(str(ack.error.get("err_code", 0)))
        text = str(ack.error.get("description", "refused"))
        if code == _WRONG_LAST_SEQUENCE:
            raise WrongSequenceError(text)
        if code in _FULL:
            raise StreamFullError(f"{subject}: {text} (err_code {code})")
        raise JetStreamError(code, text, subject)

    async def create(
        self, stream: str, subject: str, data: bytes, headers: Headers | None = None, *, point: str = ""
    ) -> int:
        """Store unless something is there; the sequence of what is stored, now or before.

        Idempotent: repeated until acknowledged or `WRITE_DEADLINE_S` passed. If exactly these bytes
        are there already, that is success.

        Raises:
            ConflictError: something else is there; `args[1]` is its `Record`.
            StreamFullError, BusUnavailableError: as for `publish`; nothing or exactly this is stored.
        """
        headers = {**(headers or {}), "Nats-Expected-Last-Subject-Sequence": "0"}
        async for _ in _attempts(f"create {subject}"):
            try:
                return await self.publish(subject, data, headers, point=point)
            except WrongSequenceError:
                there = await self.last(stream, subject)
                if there is None:  # it went away meanwhile (deleted, expired)
                    continue
                if there.data == data and there.headers.get(H_OBJECT) == headers.get(H_OBJECT):
                    return there.seq
                raise ConflictError(f"{subject} exists already", there) from None
            except (NotFoundError, BusUnavailableError):
                continue
        raise AssertionError("unreachable")

    async def offer(
        self, subject: str, data: bytes, headers: Headers | None = None, *, point: str = ""
    ) -> bool:
        """Whether it is stored; False if something was there, which may be this of an earlier attempt.

        As `create`, for those who may not read what is there.

        Raises:
            StreamFullError, BusUnavailableError: as for `publish`; nothing or exactly this is stored.
        """
        headers = {**(headers or {}), "Nats-Expected-Last-Subject-Sequence": "0"}
        async for _ in _attempts(f"create {subject}"):
            try:
                await self.publish(subject, data, headers, point=point)
            except WrongSequenceError:
                return False
            except (NotFoundError, BusUnavailableError):
                continue
            return True
        raise AssertionError("unreachable")

    async def append(
        self,
        stream: str,
        subject: str,
        data: bytes,
        *,
        record_id: str,
        expected: int,
        fence: tuple[str, int] | None = None,
        headers: Headers | None = None,
        point: str = "",
    ) -> int:
        """Store if `subject` still ends at `expected`; its sequence.

        After a timeout or a refusal the tail of the subject is read: a record with `record_id` means
        that it was stored. With `fence` (a wider filter and its last sequence) the condition is on
        that filter instead.

        Raises:
            WrongSequenceError: somebody else wrote; nothing of this was stored.
            StreamFullError: a limit is reached; nothing was stored.
            BusUnavailableError: the server stayed away for `WRITE_DEADLINE_S`; it may still land,
                but only if nobody else wrote first.
        """
        fields = {**(headers or {}), "Fairlead-Id": record_id}
        if fence is None:
            fields["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        else:
            fields["Nats-Expected-Last-Subject-Sequence-Subject"] = fence[0]
            fields["Nats-Expected-Last-Subject-Sequence"] = str(fence[1])
        async for _ in _attempts(f"append {subject}"):
            try:
                return await self.publish(subject, data, fields, point=point)
            except WrongSequenceError:
                stored = await self._find(stream, subject, record_id, expected)
                if stored is None:
                    raise
                return stored
            except (NotFoundError, BusUnavailableError):
                continue  # the next attempt is refused if this one was stored, and then it is found
        raise AssertionError("unreachable")

    async def _find(self, stream: str, subject: str, record_id: str, after: int) -> int | None:
        async for record in self.read(stream, subject, start=after + 1):
            if record.headers.get("Fairlead-Id") == record_id:
                return record.seq
        return None

    async def last(self, stream: str, subject: str) -> Record | None:
        """The last record on `subject`, or None."""
        reply = await self._direct(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"")
        return None if reply is None else _record(reply)

    async def read(
        self, stream: str, subject: str, *, start: int = 1, batch: int = 512, limit: int | None = None
    ) -> AsyncIterator[Record]:
        """The records that match `subject` from sequence `start`, in order, at most `limit`."""
        left = limit
        while left is None or left > 0:
            want = batch if left is None else min(batch, left)
            records, more = await self._read_batch(stream, subject, start, want)
            for record in records:
                yield record
            if left is not None:
                left -= len(records)
            if not more or not records:
                return
            start = records[-1].seq + 1

    async def last_sequence(self, stream: str) -> int:
        """The last sequence that the stream gave out."""
        async for _ in _attempts(f"STREAM.INFO.{stream}"):
            try:
                info = await self.api(f"STREAM.INFO.{stream}")
            except (BusUnavailableError, NotFoundError):
                continue
            state = info["state"]
            return int(state["last_seq"]) if isinstance(state, dict) else 0
        raise AssertionError("unreachable")

    async def last_of_each(self, stream: str, subject: str) -> list[Record]:
        """The last record of each subject that matches, at most 1,024 subjects.

        Raises:
            JetStreamError: more subjects match (code 413).
        """
        query = {"multi_last": [subject]}
        records, _ = await self._batch(stream, msgspec.json.encode(query))
        return records

    async def _read_batch(
        self, stream: str, subject: str, start: int, batch: int
    ) -> tuple[list[Record], bool]:
        query = {"seq": start, "next_by_subj": subject, "batch": batch, "max_bytes": 8 << 20}
        return await self._batch(stream, msgspec.json.encode(query))

    async def _batch(self, stream: str, query: bytes) -> tuple[list[Record], bool]:
        subject = f"$JS.API.DIRECT.GET.{stream}"
        async for _ in _attempts(subject):
            records: list[Record] = []
            try:
                async with replies(self) as (inbox, queue):
                    await self.send(subject, query, inbox, None)
                    while True:
                        msg = await next_reply(queue, REQUEST_TIMEOUT_S, subject)
                        status = (msg.headers or {}).get("Status")
                        if status is None:
                            records.append(_record(delivery_of(msg, subject)))
                        elif status == "404":
                            return records, False
                        elif status == "204":
                            return records, int((msg.headers or {}).get("Nats-Num-Pending", "0")) > 0
                        elif status == "503":
                            raise NotFoundError(f"nobody answers {subject}")
                        else:
                            text = (msg.headers or {}).get("Description", "refused")
                            raise JetStreamError(int(status), text, subject)
            except (BusUnavailableError, NotFoundError):
                continue
        raise AssertionError("unreachable")

    async def _direct(self, subject: str, data: bytes) -> Delivery | None:
        async for _ in _attempts(subject):
            try:
                reply = await self.request(subject, data)
            except (BusUnavailableError, NotFoundError):
                continue
            status = reply.headers.get("Status")
            if status is None:
                return reply
            if status == "404":
                return None
            raise JetStreamError(int(status), reply.headers.get("Description", "refused"), subject)
        raise AssertionError("unreachable")

    async def api(
        self, subject: str, body: object = None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> dict[str, object]:
        """The answer of `$JS.API.<subject>`, as JSON.

        Raises:
            JetStreamError: the server refused.
            NotFoundError: JetStream is not enabled, or this user may not.
            BusUnavailableError: no answer in time.
        """
        data = b"" if body is None else msgspec.json.encode(body)
        reply = await self.request(f"$JS.API.{subject}", data, timeout_s=timeout_s)
        answer = msgspec.json.decode(reply.data, type=dict[str, object])
        error = answer.get("error")
        if isinstance(error, dict):
            raise JetStreamError(
                int(error.get("err_code", 0)), str(error.get("description", "refused")), subject
            )
        return answer

    async def purge(self, stream: str, subject: str, *, before: int | None = None) -> int:
        """Delete all records on `subject`, or those before a sequence; how many there were."""
        wanted: dict[str, object] = {"filter": subject}
        if before is not None:
            wanted["seq"] = before
        answer = await self.api(f"STREAM.PURGE.{stream}", wanted)
        return int(str(answer.get("purged", 0)))


def _record(reply: Delivery) -> Record:
    headers = reply.headers
    return Record(headers["Nats-Subject"], int(headers["Nats-Sequence"]), reply.data, headers)


async def _attempts(what: str) -> AsyncIterator[int]:
    """Attempts with growing pauses until `WRITE_DEADLINE_S`; then `BusUnavailableError`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WRITE_DEADLINE_S
    attempt = 0
    while True:
        yield attempt
        attempt += 1
        if loop.time() > deadline:
            raise BusUnavailableError(f"{what}: NATS did not answer for {WRITE_DEADLINE_S:.0f} s")
        await asyncio.sleep(min(0.05 * 2**attempt, 1.0))
