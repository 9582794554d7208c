"""One NATS connection: it reconnects for ever, its waits are bounded, and what it drops is noticed.

The client library leaves gaps that are closed here: requests fail at once when the connection goes
(their replies went with it), nothing is sent into a buffer that a later connection would empty, a
dropped message is told to those who follow a stream, and one inbox serves all requests, so that a
request may have many replies.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple, Protocol, Self

import nats.errors
import structlog
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription as NatsSubscription

from fairlead_common.bus_settings import RECONNECT_PAUSE_S, BusSettings, client_options
from fairlead_common.client import Client
from fairlead_common.errors import (
    AccessRefusedError,
    BusUnavailableError,
    FairleadError,
    ForbiddenError,
    NotFoundError,
    StreamFullError,
)
from fairlead_common.failover import Failover

log = structlog.get_logger()

REQUEST_TIMEOUT_S: Final = 5.0
CLUSTER_TIMEOUT_S: Final = 2.0  # where another server may answer
REFUSED_PAUSE_S: Final = 1.0
REFUSED_PATIENCE_S: Final = 3.0  # how long a server may refuse the user before that is believed
DEAF_PAUSE_S: Final = 5.0  # before a user who may not hear answers asks for them again
_REFUSALS: Final = ("authorization violation", "authorization failed", "user authentication")
_FORBIDDEN: Final = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"')

Headers = dict[str, str]
Reply = Msg | FairleadError | None  # an answer, why there will be none, or: the connection went


class Delivery(NamedTuple):
    """One message from a subscription."""

    subject: str
    reply: str
    data: bytes
    headers: Headers


class Subscription(Protocol):
    """Something to unsubscribe."""

    async def unsubscribe(self) -> None:
        """Hear no more."""


class Connection:
    """A connection with bounded waits. Make it with `connect`."""

    def __init__(self, connection: Client, settings: BusSettings) -> None:
        self._nc = connection
        self.settings = settings
        self.closed = asyncio.Event()
        self.refusal = ""
        self._refused_since: float | None = None
        self._first_deadline: float | None = None
        self._inbox = ""
        self._token = 0
        self._waiting: dict[str, asyncio.Queue[Reply]] = {}
        self._hearing: NatsSubscription | None = None
        self._deaf: ForbiddenError | None = None
        self._deaf_until = 0.0  # time of the loop
        self._asked: dict[str, str] = {}  # by inbox: the subject, as errors of the server name it
        self._on_reconnect: set[Callable[[], None]] = set()
        self._failover = Failover()
        self.patience_s = CLUSTER_TIMEOUT_S if settings.has_several else REQUEST_TIMEOUT_S

    # -- connection --------------------------------------------------------

    @classmethod
    async def connect(
        cls, settings: BusSettings, *, name: str, inbox: str = "", timeout_s: float = 30.0
    ) -> Self:
        """A connection that reconnects for ever.

        `closed` is set if it ends for good; `refusal` says why, when the server does not want this user.

        Args:
            inbox: answers come on subjects under `_INBOX_<inbox>`, else under `_INBOX_<name>`.

        Raises:
            BusUnavailableError: no server answered within `timeout_s`.
            AccessRefusedError: one answers, and refuses this user.
        """
        connection = Client()
        bus = cls(connection, settings)
        loop = asyncio.get_running_loop()
        bus._first_deadline = deadline = loop.time() + timeout_s
        while True:
            try:
                await connection.connect(**client_options(settings, name, inbox or name), **bus._callbacks())
                break
            except (OSError, nats.errors.Error, TimeoutError) as error:
                if loop.time() > deadline:
                    raise BusUnavailableError(
                        f"no NATS server at {settings.url} within {timeout_s:.0f} s: {error}"
                    ) from error
                await asyncio.sleep(0.05)
        bus._first_deadline = None
        bus._accepted()
        bus._inbox = connection.new_inbox()
        await bus._hear_answers()
        return bus

    def _accepted(self) -> None:
        """The server wants this user: what it said before counts no more."""
        self._refused_since = None
        self._nc.options["reconnect_time_wait"] = RECONNECT_PAUSE_S

    async def _hear_answers(self) -> None:
        self._hearing = await self._nc.subscribe(
            f"{self._inbox}.*", cb=self._on_reply, pending_msgs_limit=-1, pending_bytes_limit=-1
        )

    async def _hear_again(self, deaf: ForbiddenError) -> None:
        """Ask for the answers anew, now and then: nobody tells a user that a right was given back to it.

        Raises:
            ForbiddenError: the right was missing a moment ago.
        """
        now = asyncio.get_running_loop().time()
        if now < self._deaf_until or self._hearing is None:
            raise deaf
        self._deaf_until = now + DEAF_PAUSE_S
        await self._hearing.unsubscribe()  # else a reconnect would make both
        await self._hear_answers()
        self._deaf = None

    def _callbacks(self) -> dict[str, Any]:
        async def on_closed() -> None:
            if _is_refusal(self._nc.last_error):
                log.warning("bus_access_ended")
            self.closed.set()

        async def on_reconnected() -> None:
            self._accepted()
            log.info("bus_reconnected", server=_address(self._nc))
            self._failover.restart()
            self._call_listeners()

        async def on_disconnected() -> None:
            log.warning("bus_disconnected")
            self._deaf = None  # the next connection asks for the answers by itself
            self._call_listeners()
            for queue in self._waiting.values():  # their replies went with the connection
                queue.put_nowait(None)

        async def on_error(error: Exception) -> None:
            if isinstance(error, nats.errors.SlowConsumerError):  # something was dropped
                self._call_listeners()
            if found := _FORBIDDEN.search(str(error).lower()):
                self._on_forbidden(found[1], found[2])
            elif _is_refusal(error):
                self._on_refused(error)
            elif not isinstance(error, OSError):  # a refused reconnect every 100 ms is no news
                log.warning("bus_error", error=str(error), kind=type(error).__name__)
            self._end_first_attempt(error)

        return {
            "closed_cb": on_closed,
            "reconnected_cb": on_reconnected,
            "disconnected_cb": on_disconnected,
            "error_cb": on_error,
        }

    def _on_forbidden(self, verb: str, subject: str) -> None:
        """Tell whoever waits for an answer of `subject` that there will be none."""
        log.error("bus_forbidden", verb=verb, subject=subject, error=f"no right of {verb} to {subject}")
        if verb != "publish":
            if subject == f"{self._inbox}.*".lower():  # no answer would ever come
                self._deaf = ForbiddenError(
                    f"this NATS user may not hear {self._inbox}.*, where answers come"
                )
                self._deaf_until = asyncio.get_running_loop().time() + DEAF_PAUSE_S
                for queue in self._waiting.values():
                    queue.put_nowait(self._deaf)
            return
        for inbox, asked in self._asked.items():
            if asked == subject:
                self._waiting[inbox].put_nowait(
                    ForbiddenError(f"this NATS user may not publish to {subject}")
                )

    def _on_refused(self, error: Exception) -> None:
        """Note that the server does not want this user; believe it when it stays so."""
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
            self._nc.options["reconnect_time_wait"] = REFUSED_PAUSE_S
            log.warning("bus_access_refused", error=str(error))
        elif now > self._refused_since + REFUSED_PATIENCE_S:
            self.refusal = f"{self.settings.url} refuses this user: {error}"
            if self._first_deadline is not None:
                raise AccessRefusedError(self.refusal)
            self.closed.set()

    def _end_first_attempt(self, error: Exception) -> None:
        """Raise out of the library's first `connect`, which would otherwise try for ever."""
        deadline = self._first_deadline
        if deadline is not None and asyncio.get_running_loop().time() > deadline:
            raise BusUnavailableError(f"no NATS server at {self.settings.url} within its time: {error}")

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
        try:
            await asyncio.wait_for(self._nc.close(), timeout=2.0)
        except (OSError, TimeoutError) as error:  # the other side was faster
            log.warning("bus_close_failed", error=str(error))

    @property
    def connected(self) -> bool:
        """Whether a server is connected right now."""
        return self._nc.is_connected

    def answered(self, about: str) -> None:
        """Whoever leads `about` can be reached through this server."""
        self._failover.answered(about)

    async def unanswered(self, about: str, since: float) -> None:
        """Turn to another server when nobody that leads `about` could be reached through this one for long.

        Args:
            since: time of the loop when the request was sent.
        """
        if self.settings.has_several and self.connected and self._failover.is_due(about, since):
            log.warning("bus_turns_to_another_server", about=about, server=_address(self._nc))
            await self._nc.force_reconnect()

    @property
    def client(self) -> Client:
        """The nats-py client, for `nats.micro` in service.py and nothing else."""
        return self._nc

    def new_inbox(self) -> str:
        """A subject under this connection's own inbox prefix, to be told of by replies."""
        return self._nc.new_inbox()

    def on_reconnect(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` at each disconnect, reconnect and dropped message; the result takes it back."""
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
        async with replies(self) as (inbox, queue):
            await self.send(subject, data, inbox, headers)
            msg = await next_reply(queue, timeout_s, subject)
        return delivery_of(msg, subject)

    async def round_trip(self, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Until the server has seen all that was sent before; `flush` of the library does not tell that.

        Raises:
            BusUnavailableError: not connected, or no echo within `timeout_s`.
        """
        async with replies(self) as (inbox, queue):
            await self.send(inbox, b"", "", None)
            await next_reply(queue, timeout_s, "an echo")

    async def request_many(
        self, subject: str, data: bytes, *, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> AsyncIterator[Delivery]:
        """All replies, each within `timeout_s` of the one before. Ends when none comes."""
        async with replies(self) as (inbox, queue):
            await self.send(subject, data, inbox, None)
            while True:
                try:
                    msg = await next_reply(queue, timeout_s, subject)
                except BusUnavailableError:
                    return
                yield delivery_of(msg, subject)

    # -- inside ------------------------------------------------------------

    async def _on_reply(self, msg: Msg) -> None:
        queue = self._waiting.get(msg.subject)
        if queue is not None:
            self._asked.pop(msg.subject, None)
            queue.put_nowait(msg)

    async def send(self, subject: str, data: bytes, reply: str, headers: Headers | None) -> None:
        """Send a request whose replies go to `reply`.

        Raises:
            BusUnavailableError: there is no connection right now; nothing is sent later either.
            ForbiddenError: this user may not hear answers.
            StreamFullError: it is larger than one message may be.
        """
        if not self._nc.is_connected:
            # What is published now would wait in a buffer and be sent when nobody expects it.
            raise BusUnavailableError(f"not connected to {self.settings.url}")
        try:
            if self._deaf is not None and (reply in self._waiting or subject in self._waiting):
                await self._hear_again(self._deaf)
            if reply in self._waiting:
                self._asked[reply] = subject.lower()
            await self._nc.publish(subject, data, reply=reply, headers=headers)
        except nats.errors.MaxPayloadError as error:
            raise StreamFullError(
                f"{subject}: at most {self._nc.max_payload} bytes in one message, got {len(data)}"
            ) from error
        except nats.errors.Error as error:
            raise BusUnavailableError(f"{subject}: {error}") from error


class replies:  # noqa: N801 - reads like a function at its only uses
    """An inbox of its own, and the queue its replies land in."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> tuple[str, asyncio.Queue[Reply]]:
        connection = self._connection
        connection._token += 1  # noqa: SLF001
        self._inbox = f"{connection._inbox}.{connection._token}"  # noqa: SLF001
        queue: asyncio.Queue[Reply] = asyncio.Queue()
        connection._waiting[self._inbox] = queue  # noqa: SLF001
        return self._inbox, queue

    async def __aexit__(self, *_: object) -> None:
        self._connection._waiting.pop(self._inbox, None)  # noqa: SLF001
        self._connection._asked.pop(self._inbox, None)  # noqa: SLF001


def _is_refusal(error: Exception | None) -> bool:
    return any(text in str(error).lower() for text in _REFUSALS)


class _Subscribed:
    def __init__(self, subscription: NatsSubscription) -> None:
        self._subscription = subscription

    async def unsubscribe(self) -> None:
        try:
            await self._subscription.unsubscribe()
        except nats.errors.Error:  # the connection is gone, and the subscription with it
            return


async def next_reply(queue: asyncio.Queue[Reply], timeout_s: float, subject: str) -> Msg:
    """The next reply in an inbox.

    Raises:
        BusUnavailableError: none came within `timeout_s`, or the connection went.
        ForbiddenError: this user may not ask.
    """
    try:
        if queue.empty():
            async with asyncio.timeout(timeout_s):
                msg = await queue.get()
        else:
            msg = queue.get_nowait()
    except TimeoutError as error:
        raise BusUnavailableError(f"no answer to {subject} within {timeout_s:g} s") from error
    if isinstance(msg, FairleadError):
        raise msg
    if msg is None:
        raise BusUnavailableError(f"the connection was lost before {subject} was answered")
    return msg


def delivery_of(msg: Msg, subject: str) -> Delivery:
    """What a reply to a request on `subject` says.

    Raises:
        NotFoundError: it says that nobody listens.
    """
    headers = msg.headers or {}
    if headers.get("Status") == "503":
        raise NotFoundError(f"nobody answers {subject}")
    return Delivery(msg.subject, msg.reply, msg.data, headers)


def _address(client: Client) -> str:
    """Host and port of the server at hand."""
    url = client.connected_url
    return url.netloc.rpartition("@")[2] if url else ""
