"""A lease that was given back is gone, however its renewal and its release met."""

import asyncio
import random

import pytest

from fairlead_agent import worker
from fairlead_common.bus import Bus, buckets
from fairlead_common.bus.buckets import Lease, LeaseHolder, Leases
from fairlead_common.errors import BusUnavailableError
from fairlead_common.protocol import subjects as s
from fairlead_common.received import Headers
from tests.support.agent_world import World, agent_service
from tests.support.nats_server import NatsServer


async def left(bus: Bus) -> list[str]:
    """The session leases that are stored."""
    stream = s.kv_stream(s.BUCKET_LEASES)
    return [record.subject async for record in bus.read(stream, f"$KV.{s.BUCKET_LEASES}.session.*")]


def slow_down(bus: Bus, monkeypatch: pytest.MonkeyPatch, dice: random.Random, *, lost: float) -> None:
    """Requests take up to 10 ms more each way; of so many writes, but no two in a row, the ack is lost."""
    publish, purge = bus.publish, bus.purge
    lost_before: set[str] = set()

    async def slow_publish(
        subject: str,
        data: bytes,
        headers: Headers | None = None,
        *,
        timeout_s: float | None = None,
        point: str = "",
    ) -> int:
        await asyncio.sleep(dice.random() / 100)
        seq = await publish(subject, data, headers, timeout_s=timeout_s, point=point)
        await asyncio.sleep(dice.random() / 100)
        if subject in lost_before:
            lost_before.discard(subject)
        elif dice.random() < lost:
            lost_before.add(subject)
            raise BusUnavailableError("the acknowledgement was lost")
        return seq

    async def slow_purge(stream: str, subject: str, *, before: int | None = None) -> int:
        await asyncio.sleep(dice.random() / 100)
        return await purge(stream, subject, before=before)

    monkeypatch.setattr(bus, "publish", slow_publish)
    monkeypatch.setattr(bus, "purge", slow_purge)


@pytest.mark.parametrize("lost", [0.0, 0.2], ids=["answered", "acknowledgements-lost"])
async def test_no_lease_is_left_whenever_it_is_renewed_and_released(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, lost: float
) -> None:
    dice = random.Random(7)
    slow_down(bus, monkeypatch, dice, lost=lost)
    leases = Leases(bus, LeaseHolder("w1", "boot1"), ttl_s=60)

    async def renew(lease: Lease, over: asyncio.Event) -> None:
        while not over.is_set():
            try:
                await leases.renew(lease)
            except BusUnavailableError:
                continue

    async def hold(number: int) -> None:
        lease = await leases.acquire(f"session.s{number}")
        assert lease is not None
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(renew(lease, over))
            await asyncio.sleep(dice.random() / 20)
            await leases.release(lease)
            over.set()
        assert await leases.renew(lease) is None

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(hold(number))
    assert await left(bus) == []


async def test_a_renewal_that_the_server_stores_after_the_holder_gave_up_on_it_goes_with_the_release(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(bus, LeaseHolder("w1", "boot1"), ttl_s=60)
    lease = await leases.acquire("session.a")
    assert lease is not None
    slow_down(bus, monkeypatch, random.Random(1), lost=1.0)
    with pytest.raises(BusUnavailableError):
        await leases.renew(lease)
    monkeypatch.undo()
    await leases.release(lease)
    assert await left(bus) == []


async def test_an_acquisition_whose_acknowledgement_was_lost_is_the_holders_lease(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, tries = bus.publish, 0

    async def lose_the_first(
        subject: str,
        data: bytes,
        headers: Headers | None = None,
        *,
        timeout_s: float | None = None,
        point: str = "",
    ) -> int:
        nonlocal tries
        tries += 1
        seq = await publish(subject, data, headers, timeout_s=timeout_s, point=point)
        if tries == 1:
            raise BusUnavailableError("the acknowledgement was lost")
        return seq

    monkeypatch.setattr(bus, "publish", lose_the_first)
    leases = Leases(bus, LeaseHolder("w1", "boot1"), ttl_s=60)
    lease = await leases.acquire("session.a")
    assert lease is not None
    await leases.release(lease)
    assert await left(bus) == []


async def test_workers_that_renew_all_the_time_leave_no_lease_of_an_idle_session(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that stayed would keep the next prompt of its session waiting until the TTL, here 60 s."""
    monkeypatch.setattr(worker, "LEASE_TTL_S", 0.006)  # renewed every 2 ms
    monkeypatch.setattr(buckets, "_ttl", lambda _: {"Nats-TTL": "60s", "Nats-Rollup": "sub"})
    async with (
        agent_service(nats_server, monkeypatch, name="agent-1"),
        agent_service(nats_server, monkeypatch, name="agent-2"),
    ):
        for turn in range(1, 6):
            for number in range(8):
                await w.say(f"s{number}", f"op=P{number}x{turn}")
            async with asyncio.timeout(50):
                for number in range(8):
                    await w.run_end(f"s{number}", turn)
        async with asyncio.timeout(30):
            while await left(w.bus):
                await asyncio.sleep(0.05)
