"""The bus: one NATS connection with the guarantees that Fairlead builds on.

The only module that imports nats. It deals with what the client library leaves open: acknowledged
writes are retried and read back instead of guessed, waits are bounded, a connection that closes for
good ends the process, and one inbox serves all requests, so that a request may have many replies.

Safety comes from two kinds of writes:

- `create`: stored only if nothing is on the subject. Repeating it is harmless for ever.
- `append`: stored only if the last sequence of the subject (or of a wider fence) is the one the
  writer knows. A writer that lost its place is refused by the server.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import nats
import nats.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from fairlead_common.errors import (
    BusUnavailableError,
    ConflictError,
    FairleadError,
    NotFoundError,
    StreamFullError,
)

log = structlog.get_logger()

REQUEST_TIMEOUT_S: Final = 5.0
WRITE_DEADLINE_S: Final = 30.0  # how long a safe write is repeated while the server is away
INLINE_LIMIT_BYTES: Final = 512 * 1024  # more than this travels by reference

_WRONG_LAST_SEQUENCE: Final = 10071
_FULL: Final = frozenset({10077, 10023, 10047, 10028})  # stream, server or account limits reached
_NO_STREAM: Final = 10059

Headers = dict[str, str]


class WrongSequenceError(FairleadError):
    """The fence of an append moved: somebody else wrote. Nothing was stored."""


class JetStreamError(FairleadError):
    """The server refused an API request. `code` is its `err_code`."""

    def __init__(self, code: int, text: str, subject: str) -> None:
        super().__init__(f"{text} (err_code {code}, {subject})")
        self.code = code


class Record(NamedTuple):
    """One stored message."""

    subject: str
    seq: int
    data: bytes
    headers: Headers
    previous: int | None = None  # last sequence on the same subject before it, on a live tail


class Delivery(NamedTuple):
    """One message from a subscription."""

    subject: str
    reply: str
    data: bytes
    headers: Headers


class BusSettings(NamedTuple):
    """How to reach NATS."""

    url: str = "nats://127.0.0.1:4222"
    user: str | None = None
    password: str | None = None
    token: str | None = None
    credentials_file: str | None = None
    nkey_seed_file: str | None = None
    replicas: int = 1


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: dict[str, object] | None = None


_ack_decoder = msgspec.json.Decoder(_PubAck)


def _options(settings: BusSettings, name: str) -> dict[str, Any]:
    return {
        "servers": settings.url,
        "name": name,
        "user": settings.user,
        "password": settings.password,
        "token": settings.token,
        "user_credentials": settings.credentials_file,
        "nkeys_seed": settings.nkey_seed_file,
        "allow_reconnect": True,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.1,
        "ping_interval": 5,
        "max_outstanding_pings": 2,
        "connect_timeout": 2,
        "inbox_prefix": f"_INBOX_{name}",
    }


class Subscription(Protocol):
    """Something to unsubscribe."""

    async def unsubscribe(self) -> None:
        """Hear no more."""


class Bus:
    """One connection to NATS. Make it with `Bus.connect`."""

    def __init__(self, connection: Client, settings: BusSettings) -> None:
        self._nc = connection
        self.settings = settings
        self.closed = asyncio.Event()
        self._inbox = ""
        self._token = 0
        self._waiting: dict[str, asyncio.Queue[Msg | None]] = {}
        self._on_reconnect: set[Callable[[], None]] = set()

    # -- connection --------------------------------------------------------

    @classmethod
    async def connect(cls, settings: BusSettings, *, name: str, timeout_s: float = 30.0) -> "Bus":
        """A connection that reconnects for ever; `closed` is set if it ends for good.

        Raises:
            BusUnavailableError: no server answered within `timeout_s`.
        """
        connection = Client()
        bus = cls(connection, settings)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            try:
                await connection.connect(**_options(settings, name), **bus._callbacks())
                break
            except (OSError, nats.errors.Error, TimeoutError) as error:
                if loop.time() > deadline:
                    raise BusUnavailableError(
                        f"no NATS server at {settings.url} within {timeout_s:.0f} s: {error}"
                    ) from error
                await asyncio.sleep(0.05)
        bus._inbox = connection.new_inbox()
        await connection.subscribe(
            f"{bus._inbox}.*", cb=bus._on_reply, pending_msgs_limit=-1, pending_bytes_limit=-1
        )
        return bus

    def _callbacks(self) -> dict[str, Any]:
        async def on_closed() -> None:
            self.closed.set()

        async def on_reconnected() -> None:
            log.info("bus_reconnected")
            self._call_listeners()

        async def on_disconnected() -> None:
            log.warning("bus_disconnected")
            for queue in self._waiting.values():  # their replies went with the connection
                queue.put_nowait(None)

        async def on_error(error: Exception) -> None:
            if isinstance(error, nats.errors.SlowConsumerError):  # something was dropped
                self._call_listeners()
            if not isinstance(error, OSError):  # a refused reconnect every 100 ms is no news
                log.warning("bus_error", error=str(error), kind=type(error).__name__)

        return {
            "closed_cb": on_closed,
            "reconnected_cb": on_reconnected,
            "disconnected_cb": on_disconnected,
            "error_cb": on_error,
        }

    def _call_listeners(self) -> None:
        for callback in list(self._on_reconnect):
            callback()

    async def close(self) -> None:
        """Flush what is buffered and close, within about two seconds."""
        if self._nc.is_closed:
            return
        if self._nc.is_connected:
            try:
                await asyncio.wait_for(self._nc.flush(), timeout=1.0)
            except (nats.errors.Error, TimeoutError) as error:
                log.warning("bus_flush_failed", error=str(error))
        await asyncio.wait_for(self._nc.close(), timeout=2.0)

    @property
    def connected(self) -> bool:
        """Whether a server is connected right now."""
        return self._nc.is_connected

    @property
    def client(self) -> Client:
        """The nats-py client, for `nats.micro` in service.py and nothing else."""
        return self._nc

    def new_inbox(self) -> str:
        """A subject under this connection's own inbox prefix, to be told of by replies."""
        return self._nc.new_inbox()

    def on_reconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after each reconnect or dropped message; the result takes it back."""
        self._on_reconnect.add(callback)
        return lambda: self._on_reconnect.discard(callback)

    # -- core NATS ---------------------------------------------------------

    async def emit(self, subject: str, data: bytes, headers: Headers | None = None, reply: str = "") -> None:
        """Send without acknowledgement: only for what may be lost (progress, hints, acks)."""
        try:
            await self._nc.publish(subject, data, reply=reply, headers=headers)
        except nats.errors.Error as error:  # not connected and the buffer is full, or closed
            log.warning("emit_failed", subject=subject, error=str(error))

    async def subscribe(
        self, subject: str, handler: Callable[[Delivery], None], *, queue: str = ""
    ) -> Subscription:
        """Hear `subject`. `handler` must only note what came: it runs on the reading path."""

        async def callback(msg: Msg) -> None:
            handler(Delivery(msg.subject, msg.reply, msg.data, msg.headers or {}))

        return _Subscribed(
            await self._nc.subscribe(
                subject, queue=queue, cb=callback, pending_msgs_limit=1_000_000, pending_bytes_limit=512 << 20
            )
        )

    async def request(
        self,
        subject: str,
        data: bytes,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        headers: Headers | None = None,
    ) -> Delivery:
        """The first reply.

        Raises:
            NotFoundError: nobody listens on `subject`.
            BusUnavailableError: no reply within `timeout_s`.
        """
        async with _replies(self) as (inbox, queue):
            await self._send(subject, data, inbox, headers)
            msg = await _next(queue, timeout_s, subject)
        return _delivery(msg, subject)

    async def request_many(
        self, subject: str, data: bytes, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> AsyncIterator[Delivery]:
        """All replies, each within `timeout_s` of the one before. Ends when none comes."""
        async with _replies(self) as (inbox, queue):
            await self._send(subject, data, inbox, None)
            while True:
                try:
                    msg = await _next(queue, timeout_s, subject)
                except BusUnavailableError:
                    return
                yield _delivery(msg, subject)

    # -- stored messages ---------------------------------------------------

    async def publish(self, subject: str, data: bytes, headers: Headers | None = None) -> int:
        """Store once and return the sequence. Not repeated: after an error it may or may not be stored.

        Raises:
            StreamFullError: a limit is reached; nothing was stored.
            WrongSequenceError: an expectation in `headers` does not hold; nothing was stored.
            BusUnavailableError: no acknowledgement in time.
        """
        reply = await self.request(subject, data, headers=headers)
        ack = _ack_decoder.decode(reply.data)
        if ack.error is None:
            return ack.seq
        code = int(str(ack.error.get("err_code", 0)))
        text = str(ack.error.get("description", "refused"))
        if code == _WRONG_LAST_SEQUENCE:
            raise WrongSequenceError(text)
        if code in _FULL:
            raise StreamFullError(f"{subject}: {text} (err_code {code})")
        raise JetStreamError(code, text, subject)

    async def create(self, stream: str, subject: str, data: bytes, headers: Headers | None = None) -> int:
        """Store unless something is there; the sequence of what is stored, now or before.

        Idempotent: repeated until acknowledged or `WRITE_DEADLINE_S` passed. If exactly these bytes
        are there already, that is success.

        Raises:
            ConflictError: something else is there; `args[1]` is its `Record`.
            StreamFullError, BusUnavailableError: as for `publish`; nothing or exactly this is stored.
        """
        headers = {**(headers or {}), "Nats-Expected-Last-Subject-Sequence": "0"}
        async for _ in _attempts(f"create {subject}"):
            try:
                return await self.publish(subject, data, headers)
            except WrongSequenceError:
                there = await self.last(stream, subject)
                if there is None:  # it went away meanwhile (deleted, expired)
                    continue
                if there.data == data:
                    return there.seq
                raise ConflictError(f"{subject} exists already", there) from None
            except (NotFoundError, BusUnavailableError):
                continue
        raise AssertionError("unreachable")

    async def append(
        self,
        stream: str,
        subject: str,
        data: bytes,
        *,
        record_id: str,
        expected: int,
        fence: tuple[str, int] | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Store if `subject` still ends at `expected`; its sequence.

        After a timeout or a refusal the tail of the subject is read: a record with `record_id` means
        that it was stored. With `fence` (a wider filter and its last sequence) the condition is on
        that filter instead.

        Raises:
            WrongSequenceError: somebody else wrote; nothing of this was stored.
            StreamFullError: a limit is reached; nothing was stored.
            BusUnavailableError: the server stayed away for `WRITE_DEADLINE_S`; it may still land,
                but only if nobody else wrote first.
        """
        fields = {**(headers or {}), "Fairlead-Id": record_id}
        if fence is None:
            fields["Nats-Expected-Last-Subject-Sequence"] = str(expected)
        else:
            fields["Nats-Expected-Last-Subject-Sequence-Subject"] = fence[0]
            fields["Nats-Expected-Last-Subject-Sequence"] = str(fence[1])
        async for _ in _attempts(f"append {subject}"):
            try:
                return await self.publish(subject, data, fields)
            except WrongSequenceError:
                stored = await self._find(stream, subject, record_id, expected)
                if stored is None:
                    raise
                return stored
            except (NotFoundError, BusUnavailableError):
                continue  # the next attempt is refused if this one was stored, and then it is found
        raise AssertionError("unreachable")

    async def _find(self, stream: str, subject: str, record_id: str, after: int) -> int | None:
        async for record in self.read(stream, subject, start=after + 1):
            if record.headers.get("Fairlead-Id") == record_id:
                return record.seq
        return None

    async def last(self, stream: str, subject: str) -> Record | None:
        """The last record on `subject`, or None."""
        reply = await self._direct(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"")
        return None if reply is None else _record(reply)

    async def read(
        self, stream: str, subject: str, *, start: int = 1, batch: int = 512, limit: int | None = None
    ) -> AsyncIterator[Record]:
        """The records that match `subject` from sequence `start`, in order, at most `limit`."""
        left = limit
        while left is None or left > 0:
            want = batch if left is None else min(batch, left)
            records, more = await self._read_batch(stream, subject, start, want)
            for record in records:
                yield record
            if left is not None:
                left -= len(records)
            if not more or not records:
                return
            start = records[-1].seq + 1

    async def last_sequence(self, stream: str) -> int:
        """The last sequence that the stream gave out."""
        async for _ in _attempts(f"STREAM.INFO.{stream}"):
            try:
                info = await self.api(f"STREAM.INFO.{stream}")
            except (BusUnavailableError, NotFoundError):
                continue
            state = info["state"]
            return int(state["last_seq"]) if isinstance(state, dict) else 0
        raise AssertionError("unreachable")

    async def last_of_each(self, stream: str, subject: str) -> list[Record]:
        """The last record of each subject that matches, at most 1,024 subjects.

        Raises:
            JetStreamError: more subjects match (code 413).
        """
        query = {"multi_last": [subject]}
        records, _ = await self._batch(stream, msgspec.json.encode(query))
        return records

    async def _read_batch(
        self, stream: str, subject: str, start: int, batch: int
    ) -> tuple[list[Record], bool]:
        query = {"seq": start, "next_by_subj": subject, "batch": batch, "max_bytes": 8 << 20}
        return await self._batch(stream, msgspec.json.encode(query))

    async def _batch(self, stream: str, query: bytes) -> tuple[list[Record], bool]:
        subject = f"$JS.API.DIRECT.GET.{stream}"
        async for _ in _attempts(subject):
            records: list[Record] = []
            try:
                async with _replies(self) as (inbox, queue):
                    await self._send(subject, query, inbox, None)
                    while True:
                        msg = await _next(queue, REQUEST_TIMEOUT_S, subject)
                        status = (msg.headers or {}).get("Status")
                        if status is None:
                            records.append(_record(_delivery(msg, subject)))
                        elif status == "404":
                            return records, False
                        elif status == "204":
                            return records, int((msg.headers or {}).get("Nats-Num-Pending", "0")) > 0
                        elif status == "503":
                            raise NotFoundError(f"nobody answers {subject}")
                        else:
                            text = (msg.headers or {}).get("Description", "refused")
                            raise JetStreamError(int(status), text, subject)
            except (BusUnavailableError, NotFoundError):
                continue
        raise AssertionError("unreachable")

    async def _direct(self, subject: str, data: bytes) -> Delivery | None:
        async for _ in _attempts(subject):
            try:
                reply = await self.request(subject, data)
            except (BusUnavailableError, NotFoundError):
                continue
            status = reply.headers.get("Status")
            if status is None:
                return reply
            if status == "404":
                return None
            raise JetStreamError(int(status), reply.headers.get("Description", "refused"), subject)
        raise AssertionError("unreachable")

    async def api(
        self, subject: str, body: object = None, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> dict[str, object]:
        """The answer of `$JS.API.<subject>`, as JSON.

        Raises:
            JetStreamError: the server refused.
            NotFoundError: JetStream is not enabled, or this user may not.
            BusUnavailableError: no answer in time.
        """
        data = b"" if body is None else msgspec.json.encode(body)
        reply = await self.request(f"$JS.API.{subject}", data, timeout_s=timeout_s)
        answer = msgspec.json.decode(reply.data, type=dict[str, object])
        error = answer.get("error")
        if isinstance(error, dict):
            raise JetStreamError(
                int(error.get("err_code", 0)), str(error.get("description", "refused")), subject
            )
        return answer

    async def purge(self, stream: str, subject: str) -> int:
        """Delete all records on `subject`; how many there were."""
        answer = await self.api(f"STREAM.PURGE.{stream}", {"filter": subject})
        return int(str(answer.get("purged", 0)))

    # -- inside ------------------------------------------------------------

    async def _on_reply(self, msg: Msg) -> None:
        queue = self._waiting.get(msg.subject)
        if queue is not None:
            queue.put_nowait(msg)

    async def _send(self, subject: str, data: bytes, reply: str, headers: Headers | None) -> None:
        if not self._nc.is_connected:
            # What is published now would wait in a buffer and be sent when nobody expects it.
            raise BusUnavailableError(f"not connected to {self.settings.url}")
        try:
            await self._nc.publish(subject, data, reply=reply, headers=headers)
        except nats.errors.MaxPayloadError as error:
            raise StreamFullError(
                f"{subject}: at most {self._nc.max_payload} bytes in one message, got {len(data)}"
            ) from error
        except nats.errors.Error as error:
            raise BusUnavailableError(f"{subject}: {error}") from error


class _replies:  # noqa: N801 - reads like a function at its only uses
    """An inbox of its own, and the queue its replies land in."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def __aenter__(self) -> tuple[str, asyncio.Queue[Msg | None]]:
        bus = self._bus
        bus._token += 1  # noqa: SLF001
        self._inbox = f"{bus._inbox}.{bus._token}"  # noqa: SLF001
        queue: asyncio.Queue[Msg | None] = asyncio.Queue()
        bus._waiting[self._inbox] = queue  # noqa: SLF001
        return self._inbox, queue

    async def __aexit__(self, *_: object) -> None:
        self._bus._waiting.pop(self._inbox, None)  # noqa: SLF001


class _Subscribed:
    def __init__(self, subscription: NatsSubscription) -> None:
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        try:
            await self._subscription.unsubscribe()
        except nats.errors.Error:  # the connection is gone, and the subscription with it
            return


async def _next(queue: asyncio.Queue[Msg | None], timeout_s: float, subject: str) -> Msg:
    try:
        if queue.empty():
            async with asyncio.timeout(timeout_s):
                msg = await queue.get()
        else:
            msg = queue.get_nowait()
    except TimeoutError as error:
        raise BusUnavailableError(f"no answer to {subject} within {timeout_s:g} s") from error
    if msg is None:
        raise BusUnavailableError(f"the connection was lost before {subject} was answered")
    return msg


def _delivery(msg: Msg, subject: str) -> Delivery:
    headers = msg.headers or {}
    if headers.get("Status") == "503":
        raise NotFoundError(f"nobody answers {subject}")
    return Delivery(msg.subject, msg.reply, msg.data, headers)


def _record(reply: Delivery) -> Record:
    headers = reply.headers
    return Record(headers["Nats-Subject"], int(headers["Nats-Sequence"]), reply.data, headers)


async def _attempts(what: str) -> AsyncIterator[int]:
    """Attempts with growing pauses until `WRITE_DEADLINE_S`; then `BusUnavailableError`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WRITE_DEADLINE_S
    attempt = 0
    while True:
        yield attempt
        attempt += 1
        if loop.time() > deadline:
            raise BusUnavailableError(f"{what}: NATS did not answer for {WRITE_DEADLINE_S:.0f} s")
        await asyncio.sleep(min(0.05 * 2**attempt, 1.0))


def settings_from_environment(environ: Mapping[str, str] | None = None) -> BusSettings:
    """Bus settings from `FAIRLEAD_NATS_URL`, `_USER`, `_PASSWORD`, `_PASSWORD_FILE`, `_CREDS`, `_NKEY`, `_REPLICAS`."""
    env = os.environ if environ is None else environ
    password = env.get("FAIRLEAD_NATS_PASSWORD")
    if path := env.get("FAIRLEAD_NATS_PASSWORD_FILE"):
        with open(path, encoding="utf-8") as file:
            password = file.read().strip()
    return BusSettings(
        url=env.get("FAIRLEAD_NATS_URL", "nats://127.0.0.1:4222"),
        user=env.get("FAIRLEAD_NATS_USER"),
        password=password,
        token=env.get("FAIRLEAD_NATS_TOKEN"),
        credentials_file=env.get("FAIRLEAD_NATS_CREDS"),
        nkey_seed_file=env.get("FAIRLEAD_NATS_NKEY"),
        replicas=int(env.get("FAIRLEAD_NATS_REPLICAS", "1")),
    )
