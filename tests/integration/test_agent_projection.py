"""The list of sessions, written by owners of which one may be behind the other."""

import asyncio

import msgspec

from fairlead_agent.projection import Projections
from fairlead_agent.state import Run, SessionState
from fairlead_common import subjects as s
from fairlead_common.buckets import Bucket
from fairlead_common.bus import Bus, BusSettings
from fairlead_common.entries import ApprovalRequestEntry
from fairlead_common.live_config import LiveConfig
from fairlead_common.projections import SessionSummary, approval_key, session_key
from fairlead_common.streams import provision
from tests.support.nats_server import NatsServer


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


async def test_an_owner_that_was_stopped_does_not_show_a_session_or_an_approval_that_was_deleted(
    bus: Bus,
) -> None:
    await provision(bus)
    config = LiveConfig(bus, {})
    await config.load()
    bucket = Bucket(bus, s.BUCKET_SESSIONS)
    stopped, successor = Projections(bus, config), Projections(bus, config)
    request = a_request()
    state = SessionState("s1")
    state.last_seq, state.approvals = 9, {"a1": request}
    await successor.remove(state)  # nothing of it was listed yet
    for last_seq in (8, 9):
        state.last_seq = last_seq
        stopped.show(state)
        await _write_all(stopped)
        assert await bucket.get(session_key("s1")) is None
        assert await bucket.get(approval_key("a1")) is None
    await say(stopped, 11, running=False)  # of another session of this name
    assert (await shown(bus)).last_seq == 11
    await successor.remove(state)  # a deletion that was stopped before it came to the list
    assert (await shown(bus)).last_seq == 11


async def test_a_deleted_session_and_its_approval_stay_off_the_list_in_a_crash_of_the_server(
    bus: Bus, nats_server: NatsServer
) -> None:
    await provision(bus)
    config = LiveConfig(bus, {})
    await config.load()
    projections = Projections(bus, config)
    await say(projections, 2, running=True)
    request = a_request()
    state = SessionState("s2")
    state.last_seq, state.approvals = 3, {"a1": request}
    projections.show(state)
    await _write_all(projections)
    state.last_seq = 4
    projections.show(state)
    await _write_all(projections)
    await projections.remove(state)
    nats_server.kill()
    nats_server.start()
    after = await Bus.connect(BusSettings(url=nats_server.url), name="after")
    bucket = Bucket(after, s.BUCKET_SESSIONS)
    assert await bucket.get(session_key("s2")) is None
    assert await bucket.get(approval_key("a1")) is None
    assert await bucket.get(session_key("s1")) is not None
    await after.close()


def a_request() -> ApprovalRequestEntry:
    return ApprovalRequestEntry(
        id="a1",
        call_id="c1",
        tool="bash",
        arguments={},
        workspace="w",
        host="h",
        shown_hash="x",
        expires_at=1,
        why="",
    )


async def _write_all(projections: Projections) -> None:
    over = asyncio.Event()
    over.set()
    await projections.write(over)
