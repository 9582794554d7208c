"""The list of sessions, written by owners of which one may be behind the other."""

import asyncio

import msgspec

from fairlead_agent.projection import Projections
from fairlead_agent.state import Run, SessionState
from fairlead_common import subjects as s
from fairlead_common.buckets import Bucket
from fairlead_common.bus import Bus
from fairlead_common.live_config import LiveConfig
from fairlead_common.projections import SessionSummary, session_key
from fairlead_common.streams import provision


async def shown(bus: Bus) -> SessionSummary:
    record = await Bucket(bus, s.BUCKET_SESSIONS).get(session_key("s1"))
    assert record is not None
    return msgspec.json.decode(record.data, type=SessionSummary)


async def say(projections: Projections, last_seq: int, *, running: bool) -> None:
    state = SessionState("s1")
    state.agent, state.last_seq = "main", last_seq
    state.run = Run(run_id="r1", started_ms=1, spoken=True) if running else None
    projections.show(state)
    over = asyncio.Event()
    over.set()
    await projections.write(over)


async def test_an_owner_that_was_stopped_does_not_hide_what_the_next_one_has_shown(bus: Bus) -> None:
    await provision(bus)
    config = LiveConfig(bus, {})
    await config.load()
    stopped, successor = Projections(bus, config), Projections(bus, config)
    await say(stopped, 5, running=True)
    assert ((await shown(bus)).status, (await shown(bus)).last_seq) == ("running", 5)
    await say(successor, 9, running=False)
    await say(stopped, 6, running=True)
    assert ((await shown(bus)).status, (await shown(bus)).last_seq) == ("idle", 9)
    await say(stopped, 12, running=True)
    assert (await shown(bus)).last_seq == 12
