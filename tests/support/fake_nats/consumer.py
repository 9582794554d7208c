"""A durable pull consumer in memory, with explicit acknowledgements."""

import asyncio
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from tests.support.fake_nats.matching import matches
from tests.support.fake_nats.stream import Stored, Stream

Config = dict[str, Any]

_SECOND = 1_000_000_000


class Message(NamedTuple):
    """What the server sends to an inbox: a message under its own subject, or a status."""

    subject: str
    data: bytes = b""
    headers: Mapping[str, str] = MappingProxyType({})
    reply: str = ""
    status: str = ""


Send = Callable[[str, Message], bool]  # to an inbox; whether someone hears it


class _Request:
    """A pull that waits for messages."""

    def __init__(self, reply: str, body: Config, now: float) -> None:
        self.reply = reply
        self.left = int(body.get("batch") or 1)
        expires = int(body.get("expires") or 0)
        self.expires = now + expires / _SECOND if expires else None
        self.no_wait = bool(body.get("no_wait"))
        beat = int(body.get("idle_heartbeat") or 0)
        self.heartbeat_s = beat / _SECOND if beat else None
        self.beat_at = now + self.heartbeat_s if self.heartbeat_s else None


class Consumer:
    """Delivers what a stream holds to those who pull, again until it is acknowledged."""

    def __init__(self, stream: Stream, config: Config, send: Send) -> None:
        self.stream = stream
        self.config = config
        self._send = send
        self._next = stream.last_seq + 1 if config.get("deliver_policy") == "new" else 1
        self._deliveries = 0
        self._pending: dict[int, float] = {}  # by sequence: when it is due again
        self._counts: dict[int, int] = {}
        self._requests: list[_Request] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return str(self.config["durable_name"])

    def pull(self, reply: str, body: Config) -> None:
        """Someone asks for messages."""
        self._requests.append(_Request(reply, body, self._now()))
        self.work()

    def forget_requests(self) -> None:
        """The server went down, and with it all who waited."""
        self._requests.clear()

    def settle(self, seq: int, data: bytes) -> None:
        """An acknowledgement of any kind."""
        if seq not in self._pending:
            return
        word, _, rest = data.partition(b" ")
        if word in (b"", b"+ACK", b"+TERM"):
            del self._pending[seq]
            self._counts.pop(seq, None)
        elif word == b"-NAK":
            delay = msgspec.json.decode(rest).get("delay", 0) if rest.startswith(b"{") else 0
            self._pending[seq] = self._now() + delay / _SECOND
        elif word == b"+WPI":
            self._pending[seq] = self._now() + self._ack_wait_s
        self.work()

    def work(self) -> None:
        """Deliver what can be delivered, and come back when the next thing is due."""
        now = self._now()
        while self._requests and (message := self._due(now)) is not None:
            request = self._requests[0]
            if not self._deliver(request, message, now):
                self._requests.pop(0)  # no one hears it any more
                continue
            self._requests.pop(0)
            request.left -= 1
            if request.left > 0:
                self._requests.append(request)  # all who wait have their turn
        self._end_requests(now)
        self._wake_later(now)

    def info(self) -> dict[str, object]:
        """What `CONSUMER.INFO` answers."""
        self._skip()
        return {
            "stream_name": self.stream.name,
            "name": self.name,
            "config": self.config,
            "num_pending": len(self.stream.matching(self._filter, self._next)),
            "num_ack_pending": len(self._pending),
            "num_waiting": len(self._requests),
        }

    # -- inside --------------------------------------------------------------

    @property
    def _filter(self) -> str:
        return str(self.config.get("filter_subject") or ">")

    @property
    def _ack_wait_s(self) -> float:
        return int(self.config.get("ack_wait") or 30 * _SECOND) / _SECOND

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _skip(self) -> None:
        for seq in [seq for seq in self._pending if seq not in self.stream.messages]:
            del self._pending[seq]
            self._counts.pop(seq, None)

    def _due(self, now: float) -> Stored | None:
        self.stream.expire()
        self._skip()
        again = [seq for seq, at in self._pending.items() if at <= now]
        if again:
            return self.stream.messages[min(again)]
        while self._next <= self.stream.last_seq:
            message = self.stream.messages.get(self._next)
            if message is not None and matches(self._filter, message.subject):
                return message
            self._next += 1
        return None

    def _deliver(self, request: _Request, message: Stored, now: float) -> bool:
        count = self._counts.get(message.seq, 0) + 1
        left = len(self.stream.matching(self._filter, max(self._next, message.seq + 1)))
        words = (self.stream.name, self.name, count, message.seq, self._deliveries + 1, 0, left)
        reply = ".".join(["$JS.ACK", *map(str, words)])
        heard = self._send(request.reply, Message(message.subject, message.data, message.headers, reply))
        if heard:
            self._deliveries += 1
            self._counts[message.seq] = count
            self._pending[message.seq] = now + self._ack_wait_s
            self._next = max(self._next, message.seq + 1)
            if request.heartbeat_s:
                request.beat_at = now + request.heartbeat_s
        return heard

    def _end_requests(self, now: float) -> None:
        for request in list(self._requests):
            if request.no_wait or (request.expires is not None and request.expires <= now):
                status = "404 No Messages" if request.no_wait else "408 Request Timeout"
                headers = {"Nats-Pending-Messages": str(request.left)}
                self._send(request.reply, Message(request.reply, headers=headers, status=status))
                self._requests.remove(request)
            elif request.beat_at is not None and request.heartbeat_s and request.beat_at <= now:
                request.beat_at = now + request.heartbeat_s
                if not self._send(request.reply, Message(request.reply, status="100 Idle Heartbeat")):
                    self._requests.remove(request)

    def _wake_later(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._requests:
            return
        times = [*self._pending.values()]
        times += [at for r in self._requests for at in (r.expires, r.beat_at) if at is not None]
        if times:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(min(times), now + 0.0005), self.work)

    def close(self) -> None:
        """Nothing is delivered any more."""
        self._requests.clear()
        if self._timer is not None:
            self._timer.cancel()
