"""A scheduler that is not the leader keeps up with it, so that its table never has much that is long past."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead_common.bus.buckets import Bucket
from fairlead_common.cron.jobs import Every
from fairlead_common.protocol import subjects
from fairlead_scheduler.clock import Clock
from fairlead_scheduler.firing import trigger_loop
from fairlead_scheduler.jobs.job_table import JobTable, SlotPosition, Timing
from tests.support.fake_bus import FakeBus

MINUTE = 60_000


async def test_a_follower_takes_over_how_far_the_leader_has_got_and_no_further(
    bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_loop, "SAVE_S", 0.05)
    clock, changed, stop = Clock(), asyncio.Event(), asyncio.Event()
    now_ms = clock.now_ms()
    start_ms = now_ms - 100 * MINUTE - 1000
    table = JobTable()
    table.put("a", Timing(schedule=Every(every_ms=MINUTE, anchor_ms=start_ms), since_ms=start_ms), 1)
    leader, settings = SimpleNamespace(term=0, sure=False), SimpleNamespace(may_fire=True)
    follower = trigger_loop.TriggerLoop(bus, table, cast(Any, leader), cast(Any, settings), clock, changed)
    runs = asyncio.ensure_future(follower.run(stop))
    for minutes in (10, 60):
        decided = SlotPosition(t_ms=start_ms + minutes * MINUTE, revision=1)
        await Bucket(bus, subjects.BUCKET_RUNS).put(trigger_loop.POSITION, msgspec.json.encode(decided))
        async with asyncio.timeout(20):
            while table.position != decided:
                await asyncio.sleep(0.01)
        due = table.next_due()
        assert due is not None
        assert due.due_ms == start_ms + (minutes + 1) * MINUTE  # the leader may still fire it: it is kept
    stop.set()
    changed.set()
    await asyncio.wait_for(runs, 20)
    assert [each async for each in bus.read(subjects.SLOTS, "fairlead.cron.*.*")] == []
