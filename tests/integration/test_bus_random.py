"""The server in memory and nats-server answer any sequence of requests alike."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.jetstream_api import JetStreamError
from fairlead_common.bus.streams import provision
from fairlead_common.errors import FairleadError
from fairlead_common.protocol import subjects as s
from fairlead_common.received import Record
from tests.support.fake_bus import FakeBus, FakeServer

STEPS = 400
_SUBJECTS = [
    *((s.SESSIONS, s.session_log(session)) for session in ("a", "b")),
    *((s.SESSIONS, s.mail(session, "prompt", key)) for session in ("a", "b") for key in ("k1", "k2")),
    (s.SESSIONS, s.mail("a", "steer")),
    *((s.kv_stream(s.BUCKET_CONFIG), f"$KV.{s.BUCKET_CONFIG}.{key}") for key in ("x", "y")),
    *((s.kv_stream(s.BUCKET_JOBS), f"$KV.{s.BUCKET_JOBS}.{key}") for key in ("x", "y")),
    (s.OUTPUTS, s.output_part("h", "o", 0)),
    (s.EVENTS, s.event("a")),
    (s.TIMERS, s.timer("a", "t")),
]
_FILTERS = [
    (s.SESSIONS, s.session_all("a")),
    (s.SESSIONS, s.session_mail("b")),
    (s.SESSIONS, s.ALL_SESSIONS),
    (s.SESSIONS, "fairlead.session.*.log"),
    (s.kv_stream(s.BUCKET_CONFIG), f"$KV.{s.BUCKET_CONFIG}.>"),
    (s.kv_stream(s.BUCKET_JOBS), f"$KV.{s.BUCKET_JOBS}.>"),
    *_SUBJECTS,
]
_OF_TIME = ("Nats-Time-Stamp",)

Step = Callable[[Bus], Awaitable[Any]]


def shown(record: Record | None) -> object:
    """What two servers must agree on."""
    if record is None:
        return None
    headers = {name: value for name, value in record.headers.items() if name not in _OF_TIME}
    return record.subject, record.seq, record.data, headers


async def outcome(bus: Bus, step: Step) -> object:
    try:
        return await step(bus)
    except JetStreamError as error:
        return "refused", error.code, str(error)
    except FairleadError as error:
        return type(error).__name__, str(error)


class Dice:
    """Chooses the next request; with the same seed the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._written = 0

    def step(self) -> tuple[str, Step]:
        """Some words for it, and what to do."""
        kinds = [self._publish] * 6 + [self._purge, self._last, self._first, self._each, self._state]
        return self._random.choice([*kinds, self._read, self._read])()

    def _publish(self) -> tuple[str, Step]:
        stream, subject = self._random.choice(_SUBJECTS)
        self._written += 1
        data = b"%d" % self._written
        headers: dict[str, str] = {}
        dice = self._random.random
        if dice() < 0.5:
            headers[s.H_EXPECTED] = str(self._sequence())
            if dice() < 0.4:
                headers[s.H_EXPECTED_ON] = self._random.choice([f for n, f in _FILTERS if n == stream])
        if dice() < 0.1:
            headers["Nats-Expected-Last-Sequence"] = str(self._sequence())
        if dice() < 0.15:
            headers["Nats-Msg-Id"] = f"m{self._random.randrange(4)}"
        if dice() < 0.15:
            headers["Nats-Rollup"] = self._random.choice(["sub", "sub", "all"])
        if dice() < 0.15:
            headers["Nats-TTL"] = self._random.choice(["60s", "600", "never", "0.5s"])
        if dice() < 0.3:
            headers["Fairlead-Id"] = f"r{self._written}"
        return f"publish {subject} {headers}", lambda bus: bus.publish(subject, data, headers)

    def _sequence(self) -> int:
        return self._random.choice([0, 0, self._written // 3, self._random.randrange(self._written + 1)])

    def _purge(self) -> tuple[str, Step]:
        stream, subject = self._random.choice(_FILTERS[4:])
        before = self._random.choice([None, self._sequence() + 1])
        return f"purge {subject} {before}", lambda bus: bus.purge(stream, subject, before=before)

    def _last(self) -> tuple[str, Step]:
        stream, subject = self._random.choice(_FILTERS)

        async def last(bus: Bus) -> object:
            return shown(await bus.last(stream, subject))

        return f"last {subject}", last

    def _first(self) -> tuple[str, Step]:
        stream, subject = self._random.choice(_FILTERS)

        async def first(bus: Bus) -> object:
            return shown(await bus.first(stream, subject))

        return f"first {subject}", first

    def _each(self) -> tuple[str, Step]:
        stream, subject = self._random.choice(_FILTERS)

        async def each(bus: Bus) -> object:
            return [shown(record) for record in await bus.last_of_each(stream, subject)]

        return f"last of each {subject}", each

    def _read(self) -> tuple[str, Step]:
        stream, subject = self._random.choice(_FILTERS)
        options: dict[str, int] = {
            "start": max(1, self._sequence()),
            "batch": self._random.choice([1, 3, 512]),
        }
        if self._random.random() < 0.3:
            options["limit"] = self._random.randrange(1, 6)

        async def read(bus: Bus) -> object:
            return [shown(record) async for record in bus.read(stream, subject, **options)]

        return f"read {subject} {options}", read

    def _state(self) -> tuple[str, Step]:
        stream, _ = self._random.choice(_FILTERS)

        async def state(bus: Bus) -> object:
            found = (await bus.api(f"STREAM.INFO.{stream}"))["state"]
            assert isinstance(found, dict)
            return {
                name: found.get(name) or 0 for name in ("messages", "first_seq", "last_seq", "num_subjects")
            }

        return f"state of {stream}", state


@pytest.fixture
async def fake() -> AsyncIterator[FakeBus]:
    server = FakeServer()
    connection = await server.connect("test")
    await provision(connection)
    yield connection
    await connection.close()
    server.close()


@pytest.mark.parametrize("seed", range(4))
async def test_any_requests_are_answered_alike(bus: Bus, fake: FakeBus, seed: int) -> None:
    dice = Dice(seed)
    done = []
    for _ in range(STEPS):
        words, step = dice.step()
        done.append(words)
        real, made_up = await outcome(bus, step), await outcome(fake, step)
        assert made_up == real, "\n".join(done[-12:])
