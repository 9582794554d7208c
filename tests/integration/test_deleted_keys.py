"""What was deleted from a bucket stays deleted, although nats-server is killed at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket, LeaseHolder, Leases, is_marker
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.errors import ConflictError
from fairlead_common.protocol import subjects as s
from tests.support.nats_server import NatsServer

BUCKETS = [s.BUCKET_SESSIONS, s.BUCKET_RUNS, s.BUCKET_JOBS, s.BUCKET_WORKSPACES]


@pytest.fixture
async def crash(nats_server: NatsServer, bus: Bus) -> AsyncIterator["Crash"]:
    """kill -9 of the server, and a connection to the next one."""
    made = Crash(nats_server)
    yield made
    await made.close()


class Crash:
    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._connections: list[Bus] = []

    async def __call__(self) -> Bus:
        self._server.kill()
        self._server.start()
        bus = await Bus.connect(BusSettings(url=self._server.url), name="test-after")
        self._connections.append(bus)
        await provision(bus)
        return bus

    async def close(self) -> None:
        for bus in self._connections:
            await bus.close()


@pytest.mark.parametrize("name", BUCKETS)
async def test_a_value_that_was_replaced_and_deleted_stays_absent(bus: Bus, crash: Crash, name: str) -> None:
    bucket = Bucket(bus, name)
    await bucket.put("key.b", b"1")  # an empty stream is forgotten as a whole
    first = await bucket.create("key.a", b"1")
    second = await bucket.update("key.a", b"2", first)
    await bucket.delete("key.a", revision=second)
    assert await bucket.get("key.a") is None
    assert await Bucket(await crash(), name).get("key.a") is None


async def test_the_server_brings_back_a_replaced_value_whose_successor_was_purged(
    bus: Bus, crash: Crash
) -> None:
    """Why `delete` leaves a marker. Once the server does this no more, markers may be purged."""
    bucket = Bucket(bus, s.BUCKET_SESSIONS)
    await bucket.put("key.b", b"1")
    await bucket.put("key.a", b"1")
    await bucket.put("key.a", b"2")
    await bus.purge(bucket.stream, s.kv(bucket.name, "key.a"))
    back = await Bucket(await crash(), s.BUCKET_SESSIONS).get("key.a")
    assert back is not None
    assert back.data == b"1"


async def test_a_value_that_was_written_once_and_forgotten_leaves_nothing(bus: Bus, crash: Crash) -> None:
    bucket = Bucket(bus, s.BUCKET_RUNS)
    await bucket.put("key.b", b"1")
    for _ in range(2):  # a key may come again: each time it replaces nothing
        await bucket.create("open.a.1", b"1")
        await bucket.forget("open.a.1")
    assert await bucket.last("open.a.1") is None
    assert await Bucket(await crash(), s.BUCKET_RUNS).last("open.a.1") is None


async def test_an_earlier_lease_that_a_crash_brings_back_is_over_with_its_own_time(
    bus: Bus, crash: Crash
) -> None:
    """Leases are released by a purge: each version of one has a TTL, so none lasts."""
    leases = Leases(bus, LeaseHolder("one", "1"), ttl_s=2.0)
    assert await leases.acquire("session.b")
    lease = await leases.acquire("session.a")
    assert lease is not None
    for _ in range(3):
        assert await leases.renew(lease)
    await leases.release(lease)
    after = Leases(await crash(), LeaseHolder("two", "1"), ttl_s=2.0)
    async with asyncio.timeout(15):
        while await after.acquire("session.a") is None:
            await asyncio.sleep(0.1)


async def test_a_deleted_key_can_be_created_and_updated_again(bus: Bus) -> None:
    bucket = Bucket(bus, s.BUCKET_RUNS)
    await bucket.create("key.a", b"1")
    await bucket.delete("key.a")
    created = await bucket.create("key.a", b"2")
    assert await bucket.create("key.a", b"2") == created
    with pytest.raises(ConflictError):
        await bucket.create("key.a", b"3")
    await bucket.delete("key.a")
    updated = await bucket.update("key.a", b"4", 0)
    with pytest.raises(ConflictError):
        await bucket.update("key.a", b"5", 0)
    there = await bucket.get("key.a")
    assert there is not None
    assert (there.seq, there.data) == (updated, b"4")


async def test_deleting_what_is_not_there_writes_nothing_and_another_revision_is_refused(bus: Bus) -> None:
    bucket = Bucket(bus, s.BUCKET_RUNS)
    await bucket.delete("key.a")
    assert await bucket.last("key.a") is None
    first = await bucket.put("key.a", b"1")
    await bucket.put("key.a", b"2")
    with pytest.raises(ConflictError):
        await bucket.delete("key.a", revision=first)
    await bucket.delete("key.a", marker=b"gone")
    marker = await bucket.last("key.a")
    assert marker is not None
    assert (is_marker(marker), marker.data) == (True, b"gone")
    await bucket.delete("key.a")
    again = await bucket.last("key.a")
    assert again is not None
    assert again.seq == marker.seq
