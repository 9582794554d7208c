"""The configuration document in its bucket: read, checked and written with its revision."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from fairlead.errors import UNREACHABLE, USAGE, CommandError
from fairlead.home import Home
from fairlead.server.server import NatsAccess, known_access
from fairlead_common import subjects
from fairlead_common.buckets import Bucket
from fairlead_common.bus import Bus, JetStreamError, settings_from_environment
from fairlead_common.config import Config, parse_config
from fairlead_common.errors import ConflictError, FairleadError, InvalidInputError
from fairlead_common.live_config import LiveConfig
from fairlead_common.logs import configure_logs
from fairlead_common.reading import NO_STREAM


class Revision(NamedTuple):
    """One version of the document. Revision 0: nothing was ever written."""

    revision: int
    content: dict[str, object]
    ts: str = ""


@asynccontextmanager
async def connection(access: NatsAccess, *, timeout_s: float = 5.0) -> AsyncIterator[Bus]:
    """A connection with the home's credentials.

    Raises:
        CommandError: NATS does not answer.
    """
    configure_logs("cli", level="error")  # what matters to a person is raised
    settings = settings_from_environment({**os.environ, **access.environment()})
    try:
        bus = await Bus.connect(settings, name="cli", timeout_s=timeout_s)
    except FairleadError as error:
        raise CommandError(f"{error}. Is `fairlead up` running?", UNREACHABLE) from error
    try:
        yield bus
    finally:
        await bus.close()


def access_of(home: Home) -> NatsAccess:
    """How to reach the NATS server of this home.

    Raises:
        CommandError: nothing was ever started there, and the environment names no server.
    """
    if url := os.environ.get("FAIRLEAD_NATS_URL"):
        return NatsAccess(url)
    access = known_access(home)
    if access is None:
        raise CommandError(f"no Fairlead was started in {home.path} yet: `fairlead up` first", UNREACHABLE)
    return access


async def stored_document(access: NatsAccess) -> Revision:
    """The document as it is stored.

    Raises:
        CommandError: NATS does not answer, or it is no JSON object.
    """
    async with connection(access) as bus:
        return await load(bus)


async def load(bus: Bus) -> Revision:
    """The document as it is stored."""
    history = await revisions(bus)
    return history[-1] if history else Revision(0, {})


async def revisions(bus: Bus) -> list[Revision]:
    """All versions that are kept, oldest first.

    Raises:
        CommandError: JetStream refuses, or one is no JSON object.
    """
    stream = subjects.kv_stream(subjects.BUCKET_CONFIG)
    try:
        await bus.api(f"STREAM.INFO.{stream}")
        subject = subjects.kv(subjects.BUCKET_CONFIG, LiveConfig.DOCUMENT)
        records = [
            record async for record in bus.read(stream, subject) if "KV-Operation" not in record.headers
        ]
    except JetStreamError as error:
        if error.code == NO_STREAM:  # a server that no service has met yet
            return []
        raise CommandError(str(error)) from error
    except FairleadError as error:
        raise CommandError(str(error), UNREACHABLE) from error
    return [
        _revision(record.seq, record.data, record.headers.get("Nats-Time-Stamp", "")) for record in records
    ]


def _revision(seq: int, data: bytes, ts: str) -> Revision:
    try:
        return Revision(seq, msgspec.json.decode(data, type=dict[str, object]), ts)
    except msgspec.DecodeError as error:
        raise CommandError(f"revision {seq} of the configuration cannot be read: {error}") from error


async def save(bus: Bus, content: dict[str, object], base: int) -> int:
    """Write the document if `base` is still the last revision; the new one.

    Raises:
        CommandError: it does not fit (exit status 2), or somebody else wrote meanwhile.
    """
    check(content)
    bucket = Bucket(bus, subjects.BUCKET_CONFIG)
    data = msgspec.json.encode(content)
    try:
        if base == 0:
            return await bucket.create(LiveConfig.DOCUMENT, data)
        return await bucket.update(LiveConfig.DOCUMENT, data, base)
    except ConflictError as error:
        raise CommandError(
            f"somebody else changed the configuration since revision {base}: try again"
        ) from error
    except FairleadError as error:
        raise CommandError(str(error), UNREACHABLE) from error


def check(content: dict[str, object], overrides: dict[str, object] | None = None) -> Config:
    """The effective configuration.

    Raises:
        CommandError: a key is unknown or a value does not fit; exit status 2.
    """
    try:
        return parse_config(content, overrides or {})
    except InvalidInputError as error:
        raise CommandError(str(error), USAGE) from error
