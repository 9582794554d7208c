"""One process sweeps; what the others do until they have to."""

import asyncio

from fairlead_common.bus.buckets import LeaseHolder, Leases
from fairlead_common.protocol import subjects as s
from tests.support.memory_world import MemoryWorld
from tests.support.waiting import until

LEASE = f"$KV.{s.BUCKET_LEASES}.sweeper"


async def sweeping(w: MemoryWorld) -> str:
    holder = await Leases(w.bus, LeaseHolder("test", "test"), ttl_s=1).holder("sweeper")
    return holder.worker if holder else ""


async def test_a_process_that_does_not_sweep_writes_nothing_until_the_one_that_does_is_gone(
    w: MemoryWorld,
) -> None:
    first = await w.agent("agent-1")
    await until(lambda: sweeping(w), "the first one sweeps")
    await w.agent("agent-2")
    await asyncio.sleep(20)
    assert [name for name, subject in w.server.sent if subject == LEASE and name != "agent-1"] == []
    await first.kill()
    began = asyncio.get_running_loop().time()

    async def second() -> bool:
        return await sweeping(w) == "agent-2"

    await until(second, "the second one sweeps")
    assert asyncio.get_running_loop().time() - began < 3


async def test_a_process_that_stops_leaves_the_sweeping_to_another_one_at_once(w: MemoryWorld) -> None:
    first = await w.agent("agent-1")
    await until(lambda: sweeping(w), "the first one sweeps")
    await w.agent("agent-2")
    await asyncio.sleep(2)
    await first.drain()

    async def second() -> bool:
        return await sweeping(w) == "agent-2"

    await until(second, "the second one sweeps", 1.5)
