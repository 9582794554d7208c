"""Key-value buckets and leases, on the stored messages themselves.

The client library's own buckets drop the TTL on an update and stumble over expiry markers; a
bucket is only a stream with one message a key, so Fairlead writes those messages directly.
"""

from typing import NamedTuple

import msgspec

from fairlead_common import mutants, subjects
from fairlead_common.bus import Bus, Record, WrongSequenceError
from fairlead_common.errors import BusUnavailableError, ConflictError
from fairlead_common.failpoints import failpoint


class Bucket:
    """One key-value bucket."""

    def __init__(self, bus: Bus, name: str) -> None:
        self._bus = bus
        self.name = name
        self.stream = subjects.kv_stream(name)

    async def get(self, key: str) -> Record | None:
        """The value under `key`; `seq` is its revision."""
        record = await self._bus.last(self.stream, subjects.kv(self.name, key))
        return None if record is None or "KV-Operation" in record.headers else record

    async def put(self, key: str, value: bytes, *, ttl_s: float | None = None, point: str = "") -> int:
        """Write whatever was there; the new revision.

        Raises:
            BusUnavailableError: not acknowledged; it may or may not be written.
        """
        return await self._bus.publish(subjects.kv(self.name, key), value, _ttl(ttl_s), point=point)

    async def create(self, key: str, value: bytes, *, ttl_s: float | None = None, point: str = "") -> int:
        """Write if nothing is there; the revision. Idempotent for the same bytes.

        Raises:
            ConflictError: something else is there.
        """
        subject = subjects.kv(self.name, key)
        return await self._bus.create(self.stream, subject, value, _ttl(ttl_s), point=point)

    async def update(
        self, key: str, value: bytes, revision: int, *, ttl_s: float | None = None, point: str = ""
    ) -> int:
        """Write if `revision` is still the last; the new revision.

        Raises:
            ConflictError: it is not.
        """
        try:
            return await self._bus.append(
                self.stream,
                subjects.kv(self.name, key),
                value,
                record_id=f"{revision}-{hash(value) & 0xFFFFFFFF:x}",
                expected=revision,
                headers=_ttl(ttl_s),
                point=point,
            )
        except WrongSequenceError as error:
            raise ConflictError(f"{self.name}/{key}: changed since revision {revision}") from error

    async def delete(self, key: str) -> None:
        """Remove `key` and its history."""
        await self._bus.purge(self.stream, subjects.kv(self.name, key))


def _ttl(ttl_s: float | None) -> dict[str, str]:
    # The roll-up removes what is older: else an earlier message with a longer TTL would come back.
    return {} if ttl_s is None else {"Nats-TTL": f"{max(1, round(ttl_s))}s", "Nats-Rollup": "sub"}


WRITE_TIMEOUT_S = 1.0  # of a lease: an answer that takes longer comes too late


class LeaseHolder(msgspec.Struct, frozen=True):
    """Who holds a lease. A new `boot` of the same worker may take over at once."""

    worker: str
    boot: str


def session_lease(session: str) -> str:
    """The key of a session's lease; no other lease has a key of this form."""
    return f"session.{session}"


class Lease(NamedTuple):
    """A lease that this process holds, at this revision."""

    key: str
    revision: int


_holder = msgspec.json.Decoder(LeaseHolder)


class Leases:
    """Courtesy locks with a TTL. They save double work and decide nothing: the fence does."""

    def __init__(self, bus: Bus, holder: LeaseHolder, *, ttl_s: float) -> None:
        self._bus = bus
        self._holder = holder
        self._value = msgspec.json.encode(holder)
        self.ttl_s = ttl_s
        self._stream = subjects.kv_stream(subjects.BUCKET_LEASES)

    async def acquire(self, key: str) -> Lease | None:
        """The lease, or None while somebody else holds it."""
        try:
            return Lease(key, await self._write(key, 0, "lease.acquire"))
        except WrongSequenceError:
            record = await self._bus.last(self._stream, subjects.kv(subjects.BUCKET_LEASES, key))
        if record is None:
            return None  # it expired this moment; the next attempt gets it
        holder = _holder.decode(record.data)
        if holder.worker != self._holder.worker:
            return None
        try:
            return Lease(key, await self._write(key, record.seq, "lease.acquire"))
        except WrongSequenceError:
            return None

    async def renew(self, lease: Lease) -> Lease | None:
        """The lease with a fresh TTL, or None if it is lost."""
        for expected in (lease.revision, 0):  # 0: it is gone, for the server was away too long
            try:
                return Lease(lease.key, await self._write(lease.key, expected, "lease.renew"))
            except WrongSequenceError:
                continue
        record = await self._bus.last(self._stream, subjects.kv(subjects.BUCKET_LEASES, lease.key))
        if record is not None and record.data == self._value:
            return Lease(lease.key, record.seq)  # an earlier renewal was stored, its acknowledgement lost
        return None

    async def release(self, lease: Lease) -> None:
        """Give it back. If that fails it expires by itself."""
        try:
            subject = subjects.kv(subjects.BUCKET_LEASES, lease.key)
            # Not what came after: that is the lease of whoever took over.
            failpoint("lease.release.before")
            await self._bus.purge(self._stream, subject, before=lease.revision + 1)
            failpoint("lease.release.after")
        except BusUnavailableError:
            return

    async def held(self, key: str) -> bool:
        """Whether a process that may still live holds it: not one that this process has replaced."""
        record = await self._bus.last(self._stream, subjects.kv(subjects.BUCKET_LEASES, key))
        if record is None:
            return False
        holder = _holder.decode(record.data)
        return holder.worker != self._holder.worker or holder.boot == self._holder.boot

    async def holder(self, key: str) -> str | None:
        """Which worker holds it, or None."""
        record = await self._bus.last(self._stream, subjects.kv(subjects.BUCKET_LEASES, key))
        return None if record is None else _holder.decode(record.data).worker

    async def _write(self, key: str, expected: int, point: str) -> int:
        if mutants.active("no_lease"):
            return 0
        headers = {**_ttl(self.ttl_s), "Nats-Expected-Last-Subject-Sequence": str(expected)}
        subject = subjects.kv(subjects.BUCKET_LEASES, key)
        return await self._bus.publish(subject, self._value, headers, timeout_s=WRITE_TIMEOUT_S, point=point)
