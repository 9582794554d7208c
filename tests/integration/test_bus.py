"""The guarantees of the bus, against a real nats-server that is killed where it hurts."""

import asyncio
import gc
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from fairlead_common import retry
from fairlead_common import subjects as s
from fairlead_common.buckets import Bucket, LeaseHolder, Leases
from fairlead_common.bus import Bus, BusSettings, Record, WrongSequenceError
from fairlead_common.errors import (
    BusUnavailableError,
    ConflictError,
    NotFoundError,
    StreamFullError,
    WeakConfigurationError,
)
from fairlead_common.ids import new_id
from fairlead_common.objects import Objects, OutputInfo
from fairlead_common.outputs import Outputs
from fairlead_common.pull import Job, PullConsumer
from fairlead_common.streams import STREAMS, provision
from fairlead_common.tail import Source, Tail
from tests.support.nats_server import NatsServer


async def append(bus: Bus, session: str, expected: int, record_id: str | None = None) -> int:
    return await bus.append(
        s.SESSIONS, s.session_log(session), b"{}", record_id=record_id or new_id(), expected=expected
    )


async def until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


async def test_create_of_the_same_bytes_again_gives_the_first_sequence(bus: Bus) -> None:
    subject = s.mail("a", "prompt", "key")
    first = await bus.create(s.SESSIONS, subject, b"hello")
    assert await bus.create(s.SESSIONS, subject, b"hello") == first


async def test_create_of_other_bytes_is_a_conflict_that_shows_what_is_there(bus: Bus) -> None:
    subject = s.mail("a", "prompt", "key")
    await bus.create(s.SESSIONS, subject, b"hello")
    with pytest.raises(ConflictError) as caught:
        await bus.create(s.SESSIONS, subject, b"other")
    assert caught.value.record is not None
    assert caught.value.record.data == b"hello"
    assert str(caught.value) == f"{subject} exists already"


async def test_append_by_a_writer_that_lost_its_place_stores_nothing(bus: Bus) -> None:
    first = await append(bus, "a", 0)
    second = await append(bus, "a", first)
    with pytest.raises(WrongSequenceError):
        await append(bus, "a", first)
    last = await bus.last(s.SESSIONS, s.session_log("a"))
    assert last is not None
    assert last.seq == second


async def test_append_whose_acknowledgement_was_lost_is_found_instead_of_repeated(bus: Bus) -> None:
    """The server stored it, the writer never heard, and repeats under the same record id."""
    first = await append(bus, "a", 0, "record-1")
    assert await append(bus, "a", 0, "record-1") == first
    assert [record.seq async for record in bus.read(s.SESSIONS, s.session_log("a"))] == [first]


async def test_append_finds_its_record_even_when_another_owner_wrote_after_it(bus: Bus) -> None:
    first = await append(bus, "a", 0, "record-1")
    await append(bus, "a", first, "of another owner")
    assert await append(bus, "a", 0, "record-1") == first


async def test_close_with_a_wildcard_fence_fails_when_mail_arrived(bus: Bus) -> None:
    seen = await append(bus, "a", 0)
    await bus.publish(s.mail("a", "steer"), b"wait")
    fence = (s.session_all("a"), seen)
    with pytest.raises(WrongSequenceError):
        await bus.append(
            s.SESSIONS, s.session_log("a"), b"{}", record_id=new_id(), expected=seen, fence=fence
        )


async def test_writes_wait_for_a_server_that_is_killed_and_comes_back(
    bus: Bus, nats_server: NatsServer
) -> None:
    first = await append(bus, "a", 0)
    nats_server.kill()
    writing = asyncio.create_task(append(bus, "a", first))
    creating = asyncio.create_task(bus.create(s.SESSIONS, s.mail("a", "prompt", "k"), b"x"))
    await asyncio.sleep(0.3)
    nats_server.start()
    async with asyncio.timeout(10):
        await writing
        await creating
    records = [record async for record in bus.read(s.SESSIONS, s.session_all("a"))]
    assert len(records) == 3


async def test_a_full_stream_refuses_visibly_and_keeps_what_it_has(bus: Bus) -> None:
    info = await bus.api(f"STREAM.INFO.{s.SESSIONS}")
    config = info["config"]
    assert isinstance(config, dict)
    await bus.api(f"STREAM.UPDATE.{s.SESSIONS}", {**config, "max_bytes": 4096})
    stored = 0
    with pytest.raises(StreamFullError):
        for number in range(100):
            await bus.create(s.SESSIONS, s.mail("a", "prompt", f"k{number}"), b"x" * 200)
            stored += 1
    assert len([record async for record in bus.read(s.SESSIONS, s.session_mail("a"))]) == stored > 0


async def test_provisioning_twice_changes_nothing_and_a_weaker_stream_is_refused(bus: Bus) -> None:
    await provision(bus)
    info = await bus.api(f"STREAM.INFO.{s.SESSIONS}")
    config = info["config"]
    assert isinstance(config, dict)
    await bus.api(f"STREAM.UPDATE.{s.SESSIONS}", {**config, "discard": "old", "max_age": 3_600_000_000_000})
    with pytest.raises(WeakConfigurationError, match=r"discard is 'old'.*max_age is 3600000000000 ns"):
        await provision(bus)


async def test_plain_text_published_to_the_public_subject_lands_in_the_mailbox(bus: Bus) -> None:
    await bus.emit("fairlead.prompt.main", b"hello")
    async with asyncio.timeout(20):
        while (record := await bus.last(s.SESSIONS, s.mail("main", "prompt"))) is None:
            await asyncio.sleep(0.01)
    assert record.data == b"hello"


async def test_live_tail_has_no_gap_and_no_repeat_while_the_server_is_killed(
    bus: Bus, nats_server: NatsServer
) -> None:
    writer = await Bus.connect(BusSettings(url=nats_server.url), name="writer")
    seen: list[int] = []
    written: list[int] = []

    async def follow() -> None:
        source = Source(s.SESSIONS, s.session_log("a"), 1, chained=True)
        async with Tail(bus, s.live("a"), [source], lambda _: 0) as tail:
            while True:
                await tail.wait(1.0)
                seen.extend(record.seq for _, record in await tail.take())

    following = asyncio.create_task(follow())
    for number in range(300):
        if number in (100, 200):
            nats_server.kill()
            nats_server.start()
        written.append(await append(writer, "a", written[-1] if written else 0))
    await until(lambda: len(seen) >= len(written))
    following.cancel()
    await writer.close()
    assert seen == written


async def test_pull_loop_goes_on_after_the_server_was_killed(bus: Bus, nats_server: NatsServer) -> None:
    jobs: list[Job] = []
    stop = asyncio.Event()
    pull = PullConsumer(bus, s.SESSIONS, s.AGENTS_CONSUMER, jobs.append, lambda: 10)
    pulling = asyncio.create_task(pull.run(stop))
    await bus.create(s.SESSIONS, s.mail("a", "prompt", "one"), b"1")
    await until(lambda: len(jobs) == 1)
    nats_server.kill()
    nats_server.start()
    await bus.create(s.SESSIONS, s.mail("a", "prompt", "two"), b"2")
    await until(lambda: any(job.data == b"2" for job in jobs), timeout_s=5)
    stop.set()
    await pulling


async def test_lease_expires_after_renewals_stop_and_a_new_boot_takes_over_at_once(bus: Bus) -> None:
    first = Leases(bus, LeaseHolder("w1", "boot1"), ttl_s=1)
    other = Leases(bus, LeaseHolder("w2", "boot1"), ttl_s=1)
    lease = await first.acquire("s")
    assert lease is not None
    for _ in range(3):
        await asyncio.sleep(0.6)
        lease = await first.renew(lease)
        assert lease is not None
    assert await other.acquire("s") is None
    assert await other.held("s")

    reborn = Leases(bus, LeaseHolder("w1", "boot2"), ttl_s=1)
    assert not await reborn.held("s")
    taken = await reborn.acquire("s")
    assert taken is not None
    assert await first.renew(lease) is None

    async with asyncio.timeout(20):
        while await other.acquire("s") is None:
            await asyncio.sleep(0.05)


async def test_bucket_update_needs_the_last_revision(bus: Bus) -> None:
    bucket = Bucket(bus, s.BUCKET_CONFIG)
    revision = await bucket.create("document", b"{}")
    await bucket.update("document", b'{"a":1}', revision)
    with pytest.raises(ConflictError, match="changed since revision"):
        await bucket.update("document", b'{"a":2}', revision)


async def test_payloads_over_the_inline_limit_travel_by_reference(bus: Bus) -> None:
    objects = Objects(bus)
    data = msgspec.json.encode("x" * 900_000)
    payload, headers = await objects.pack(data)
    assert payload == b""
    assert await objects.unpack(payload, headers) == data
    assert await objects.pack(b"small") == (b"small", {})


async def test_what_is_heard_during_a_catch_up_waits_behind_what_was_stored_before(bus: Bus) -> None:
    """A record that arrives live in the middle of the read must not make the rest of the read look old."""
    for number in range(20):
        await bus.create(s.SESSIONS, s.mail("a", "prompt", f"k{number}"), b"x")
    source = Source(s.SESSIONS, s.session_all("a"), 1)
    async with Tail(bus, s.live("a"), [source], lambda _: 0) as tail:
        read = bus.read

        async def read_slowly(*arguments: object, **options: object) -> AsyncIterator[Record]:
            async for record in read(*arguments, **options):  # type: ignore[arg-type]
                yield record
                if record.seq == 5:
                    await bus.create(s.SESSIONS, s.mail("a", "steer", "live"), b"y")
                    await asyncio.sleep(0.1)

        bus.read = read_slowly  # type: ignore[method-assign]
        news = await tail.take()
        bus.read = read  # type: ignore[method-assign]
    assert [record.seq for _, record in news] == list(range(1, 22))


async def test_tail_over_two_streams_loses_nothing_of_the_first_while_it_reads_the_second(bus: Bus) -> None:
    last = await append(bus, "a", 0)
    for _ in range(10):
        await bus.publish(s.event("a"), b"{}")
    sources = [
        Source(s.SESSIONS, s.session_log("a"), 1, chained=True),
        Source(s.EVENTS, s.event("a"), 1, chained=True, lossy=True),
    ]
    async with Tail(bus, s.live("a"), sources, lambda live: 1 if live.endswith(".event") else 0) as tail:
        read = bus.read

        async def read_slowly(stream: str, *arguments: object, **options: object) -> AsyncIterator[Record]:
            async for record in read(stream, *arguments, **options):  # type: ignore[arg-type]
                yield record
                if stream == s.EVENTS and record.seq == 3:
                    await append(bus, "a", last)
                    await asyncio.sleep(0.1)

        bus.read = read_slowly  # type: ignore[method-assign]
        news = await tail.take()
        bus.read = read  # type: ignore[method-assign]
    assert [record.seq for index, record in news if index == 0] == [1, 2]
    assert [record.seq for index, record in news if index == 1] == list(range(1, 11))


async def test_renewal_whose_acknowledgement_was_lost_is_not_a_lost_lease(bus: Bus) -> None:
    leases = Leases(bus, LeaseHolder("w1", "boot1"), ttl_s=5)
    lease = await leases.acquire("s")
    assert lease is not None
    before = lease.revision
    assert await leases.renew(lease) is not None
    stored, lease.revision = lease.revision, before  # its holder never heard of `stored`
    assert await leases.renew(lease) is not None
    assert lease.revision == stored


async def test_lease_of_a_successor_survives_the_release_of_the_one_before(bus: Bus) -> None:
    first = Leases(bus, LeaseHolder("w1", "boot1"), ttl_s=1)
    second = Leases(bus, LeaseHolder("w2", "boot1"), ttl_s=5)
    lease = await first.acquire("s")
    assert lease is not None
    async with asyncio.timeout(20):
        while await second.acquire("s") is None:
            await asyncio.sleep(0.05)
    await first.release(lease)
    assert await second.held("s")


async def test_two_large_payloads_of_one_subject_are_told_apart(bus: Bus) -> None:
    subject = s.tool_request("h", "c")
    await bus.create(s.TOOLS, subject, b"", {s.H_OBJECT: "one"})
    assert await bus.create(s.TOOLS, subject, b"", {s.H_OBJECT: "one"})
    with pytest.raises(ConflictError):
        await bus.create(s.TOOLS, subject, b"", {s.H_OBJECT: "two"})


async def test_what_was_seen_of_a_stream_does_not_count_for_one_made_anew(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster, who lacks what was seen shows the past; a new stream lacks it for good."""
    monkeypatch.setattr(retry, "WRITE_DEADLINE_S", 1.0)
    config = {"name": "LOG", "subjects": ["log.*"], "storage": "file", "allow_direct": True}
    bus = await Bus.connect(BusSettings(url=nats_server.url, replicas=3), name="test")
    try:
        await bus.api("STREAM.CREATE.LOG", config)
        for _ in range(3):
            await bus.publish("log.a", b"x")
        assert await bus.last("LOG", "log.none") is None
        await bus.api("STREAM.DELETE.LOG")
        await bus.api("STREAM.CREATE.LOG", config)
        assert await bus.last("LOG", "log.a") is None
        assert [each async for each in bus.read("LOG", "log.a")] == []
        bus.reached("LOG", await bus.publish("log.a", b"y") + 1)
        with pytest.raises(BusUnavailableError):
            await bus.last("LOG", "log.none")
    finally:
        await bus.close()


async def test_stream_that_may_lose_its_end_is_believed_when_it_lacks_something(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "WRITE_DEADLINE_S", 1.0)
    lossy = {str(each["name"]) for each in STREAMS if each.get("persist_mode") == "async"}
    assert lossy
    in_cluster = await Bus.connect(bus.settings._replace(replicas=3), name="test")
    try:
        for stream in lossy:
            in_cluster.reached(stream, 1_000)
            subject = f"$KV.{stream[3:]}.none" if stream.startswith("KV_") else s.event("none")
            assert await in_cluster.last(stream, subject) is None
        in_cluster.reached(s.SESSIONS, 1_000)
        with pytest.raises(BusUnavailableError):
            await in_cluster.last(s.SESSIONS, s.session_log("none"))
    finally:
        await in_cluster.close()


async def test_what_one_host_says_of_an_output_hides_nothing_that_another_stored(bus: Bus) -> None:
    data = b"said by a command"
    name = hashlib.sha256(data).hexdigest()
    lie = msgspec.json.encode(OutputInfo(size=1 << 60, parts=1))
    await bus.create(s.OUTPUTS, s.output_part("bad", name, 0), lie)
    with pytest.raises(NotFoundError, match=f"at most 100 bytes, it has {1 << 60}"):
        await Objects(bus).get(name, limit_bytes=100)
    assert await Outputs(bus, "good").put(data) == name
    assert await Objects(bus).get(name) == data


async def test_calls_and_reads_that_are_left_early_leave_no_task_behind(bus: Bus) -> None:
    """An async generator that nobody closes is closed by a task that the loop makes for it."""
    loop = asyncio.get_running_loop()
    made: list[str] = []

    def note(running: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(repr(work))
        return asyncio.Task(work, loop=running, **options)

    bucket = Bucket(bus, s.BUCKET_CONFIG)
    last = 0
    for number in range(5):
        last = await append(bus, "a", last, f"r{number}")
    loop.set_task_factory(note)
    try:
        for number in range(250):
            await bus.create(s.SESSIONS, s.mail("a", "prompt", f"k{number}"), b"x")
            last = await append(bus, "a", last)
            assert await bus.last(s.SESSIONS, s.session_log("a")) is not None
            assert await bus.first(s.SESSIONS, s.session_log("a")) is not None
            await bus.last_sequence(s.SESSIONS)
            await bucket.put("document", b"{}")
            async for _ in bus.read(s.SESSIONS, s.session_log("a")):
                break
            async for _ in bus.read(s.SESSIONS, s.session_log("a"), limit=3):
                pass
        gc.collect()
        await asyncio.sleep(0.01)
    finally:
        loop.set_task_factory(None)
    assert made == []
