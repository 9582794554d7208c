"""A restored server whose lists and logs are of different moments: the lists follow the logs."""

import msgspec

from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.entries import ApprovalRequestEntry, DeletedEntry, RunEndEntry, RunStartEntry
from fairlead_common.protocol.entry_codec import encode_entry
from fairlead_common.protocol.projections import (
    TOMBSTONE,
    SessionSummary,
    approval_key,
    session_key,
    session_marker,
)
from fairlead_node.backup.manifest import Manifest
from fairlead_node.backup.reconcile import Reconciliation

MANIFEST = Manifest(
    id="b1",
    format=1,
    made_by="",
    began_at="then",
    made_at="",
    server="",
    head_sha256="",
    streams=[],
    files=[],
)


async def _append(bus: Bus, session: str, data: bytes, phase: str, cursor: int = 0) -> int:
    headers = {s.H_STATE: phase, s.H_CURSOR: str(cursor)}
    return await bus.publish(s.session_log(session), data, headers)


async def test_lists_follow_the_logs_where_a_deletion_lies_between_them(bus: Bus) -> None:
    bucket = Bucket(bus, s.BUCKET_SESSIONS)
    # Deleted, while the list is of a moment before.
    seq = await _append(bus, "gone", encode_entry(DeletedEntry(id="d1")), "closed")
    await bucket.put(session_key("gone"), msgspec.json.encode(SessionSummary(id="gone", last_seq=seq)))
    # Here, while the list is of a moment after it was deleted.
    seq = await _append(bus, "here", encode_entry(RunEndEntry(id="e1", outcome="completed")), "closed")
    await bucket.put(session_key("here"), b"{}")
    await bucket.delete(session_key("here"), marker=session_marker(seq + 3))
    # Waiting for a person, while the list is of a moment after the answer.
    await _append(
        bus, "asks", encode_entry(RunStartEntry(id="e2", agent="main", model="m", mode="ask")), "open"
    )
    request = ApprovalRequestEntry(
        id="a1", call_id="c1", tool="bash", arguments={}, workspace="w", host="h", shown_hash="x", why="",
        expires_at=1 << 42,
    )  # fmt: skip
    await _append(bus, "asks", encode_entry(request), "parked")
    for approval in ("a1", "a2"):
        await bucket.put(approval_key(approval), b"{}")
        await bucket.delete(approval_key(approval), marker=TOMBSTONE)
    # A result that comes late is no session, and is told nothing.
    ended = await _append(bus, "late", encode_entry(DeletedEntry(id="d2")), "closed")
    await bus.publish(s.mail("late", "result", "c9"), b"{}")

    settled = await Reconciliation(bus, MANIFEST).settle()

    assert settled.sessions == 2
    assert settled.waiting == 1
    assert await bucket.get(session_key("gone")) is None
    markers = {key: await bucket.last(key) for key in ("session.here", "approval.a1", "approval.a2")}
    assert {key: marker.data for key, marker in markers.items() if marker} == {
        "session.here": b"",  # owners may show both again
        "approval.a1": b"",
        "approval.a2": TOMBSTONE,
    }
    late = [record.subject async for record in bus.read(s.SESSIONS, s.session_all("late"), start=ended + 1)]
    assert late == [s.mail("late", "result", "c9")]
