"""The server: passes messages on, stores what streams take, and answers for JetStream."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from tests.support.fake_nats.api import JetStream
from tests.support.fake_nats.consumer import Message
from tests.support.fake_nats.faults import Fault, Faults
from tests.support.fake_nats.matching import beginning_of, matches, may_match
from tests.support.fake_nats.stream import Clock, Headers, RefusedError, Stored, Stream

RESTART_S = 0.5


class Peer(Protocol):
    """A connected client, as the server sees it."""

    name: str

    def receive(self, sid: int, message: Message) -> None:
        """A message for one of its subscriptions."""

    def disconnected(self) -> None:
        """The connection is gone."""

    def die(self) -> None:
        """The process behind it is gone."""


class Interest(NamedTuple):
    """A subscription of a client."""

    peer: Peer
    sid: int
    subject: str
    queue: str


class FakeNats:
    """One nats-server with JetStream. It is up until `kill`, and again after `start`."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.up = True
        self.sent: list[tuple[str, str]] = []  # who sent something to which subject, in order
        clock = Clock(lambda: asyncio.get_running_loop().time(), time.time)
        self._clock = clock
        self.jetstream = JetStream(clock, self._send_to)
        self._interests: list[Interest] = []
        self._candidates: dict[
            str, list[Interest]
        ] = {}  # by what subjects begin with, until interests change
        self._peers: list[Peer] = []
        self._turn = 0
        self._timers: set[asyncio.TimerHandle] = set()

    # -- life ----------------------------------------------------------------

    def kill(self) -> None:
        """As by kill -9: connections go, what is stored stays."""
        self.up = False
        for consumer in self.jetstream.consumers.values():
            consumer.forget_requests()
        for peer in list(self._peers):
            self.cut(peer)

    def start(self) -> "FakeNats":
        """Take connections again."""
        self.up = True
        return self

    def _come_back(self) -> None:
        self.up = True

    def close(self) -> None:
        """The test is over: nothing is due any more."""
        for consumer in self.jetstream.consumers.values():
            consumer.close()
        for timer in self._timers:
            timer.cancel()

    def cut(self, peer: Peer) -> None:
        """End one connection; the client makes another."""
        self.leave(peer)
        peer.disconnected()

    # -- clients -------------------------------------------------------------

    def join(self, peer: Peer) -> None:
        """A client connects."""
        self._peers.append(peer)

    def leave(self, peer: Peer) -> None:
        """A client goes."""
        self._hear([each for each in self._interests if each.peer is not peer])
        if peer in self._peers:
            self._peers.remove(peer)

    def subscribe(self, interest: Interest) -> None:
        """A client wants to hear a subject."""
        self._hear([*self._interests, interest])

    def unsubscribe(self, peer: Peer, sid: int) -> None:
        """A client wants to hear no more."""
        self._hear([each for each in self._interests if each.peer is not peer or each.sid != sid])

    def _hear(self, interests: list[Interest]) -> None:
        self._interests = interests
        self._candidates = {}

    def _who_hears(self, subject: str) -> list[Interest]:
        """In the order in which they subscribed.

        Most messages are answers to an inbox, which one client hears: what cannot match is not compared.
        """
        beginning = beginning_of(subject)
        candidates = self._candidates.get(beginning)
        if candidates is None:
            candidates = [each for each in self._interests if may_match(each.subject, beginning)]
            self._candidates[beginning] = candidates
        return [each for each in candidates if matches(each.subject, subject)]

    def publish(self, peer: Peer, message: Message) -> None:
        """A client sends something. It is acted on in a moment, as over a wire."""
        loop = asyncio.get_running_loop()
        if (hold := self.faults.holding(peer.name, message.subject)) is not None:
            hold.keep(lambda: self._arrive(peer, message))
        elif self.faults.latency_s:
            self._later(self.faults.latency_s, lambda: self._arrive(peer, message))
        else:
            loop.call_soon(self._arrive, peer, message)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._timers.add(timer)

    # -- messages ------------------------------------------------------------

    def _arrive(self, peer: Peer, message: Message) -> None:
        if peer not in self._peers:
            return  # its connection went while this was on its way
        fault = self.faults.next(peer.name, message.subject)
        if fault is Fault.CUT_BEFORE:
            self.cut(peer)
        if fault is Fault.DEAD_BEFORE:
            peer.die()
        if fault in (Fault.CUT_BEFORE, Fault.DEAD_BEFORE, Fault.LOST):
            return
        self.sent.append((peer.name, message.subject))
        self._act(message._replace(reply="") if fault is Fault.ANSWER_LOST else message)
        if fault is Fault.CUT_AFTER:
            self.cut(peer)
        if fault is Fault.DEAD_AFTER:
            peer.die()
        if fault is Fault.SERVER_KILLED:
            self.kill()
            self._later(RESTART_S, self._come_back)

    def _act(self, message: Message) -> None:
        subject = message.subject
        if subject.startswith("$JS.API."):
            self.jetstream.request(subject, message.data, message.reply)
        elif subject.startswith("$JS.ACK."):
            words = subject.split(".")
            consumer = self.jetstream.consumers.get((words[2], words[3]))
            if consumer is not None:
                consumer.settle(int(words[5]), message.data)
        else:
            heard = self.deliver(message)
            stream = self.jetstream.stream_for(subject)
            if stream is not None:
                self._store(stream, message)
            elif not heard and message.reply:
                self._send_to(message.reply, Message(message.reply, status="503"))

    def deliver(self, message: Message) -> bool:
        """Hand a message to all who want it, and one of each queue group; whether there is anybody."""
        groups: dict[str, list[Interest]] = {}
        for interest in self._who_hears(message.subject):
            groups.setdefault(interest.queue or f"{id(interest.peer)}.{interest.sid}", []).append(interest)
        for members in groups.values():
            self._turn += 1
            chosen = members[self._turn % len(members)]
            chosen.peer.receive(chosen.sid, message)
        return bool(groups)

    def _send_to(self, inbox: str, message: Message) -> bool:
        """Deliver to whoever hears `inbox`, whatever subject the message has."""
        found = self._who_hears(inbox) if inbox else []
        for interest in found:
            interest.peer.receive(interest.sid, message)
        return bool(found)

    # -- storing -------------------------------------------------------------

    def _store(self, stream: Stream, message: Message) -> None:
        answer: dict[str, object] = {"stream": stream.name, "seq": 0}
        stored: Stored | None = None
        try:
            self._check_schedule(stream, message.headers)
            if "Nats-Schedule" in message.headers:  # the next schedule of a subject replaces the one before
                stream.purge(message.subject)
            stored, known = stream.store(message.subject, message.data, message.headers)
            answer["seq"] = stored.seq
            if known:
                answer["duplicate"] = True
                stored = None
        except RefusedError as refused:
            answer["error"] = refused.body
        if stored is not None and (told := stream.republished(stored)) is not None:
            self.deliver(Message(told[0], stored.data, told[1]))
        if message.reply:
            self._send_to(message.reply, Message(message.reply, msgspec.json.encode(answer)))
        if stored is not None:
            self._schedule(stream, stored)
            for consumer in self.jetstream.consumers_of(stream.name):
                consumer.work()

    def _check_schedule(self, stream: Stream, headers: Headers) -> None:
        if "Nats-Schedule" in headers and not stream.config.get("allow_msg_schedules"):
            raise RefusedError(400, 10188, "message schedules is disabled")

    def _schedule(self, stream: Stream, stored: Stored) -> None:
        """Publish to the target when the time has come; only `@at` is known here."""
        word, _, at = stored.headers.get("Nats-Schedule", "").partition(" ")
        if word != "@at":
            return

        def fire() -> None:
            if stored.seq not in stream.messages or self.jetstream.streams.get(stream.name) is not stream:
                return
            if not self.up:
                self._later(0.1, fire)
                return
            headers = {"Nats-Scheduler": stored.subject, "Nats-Schedule-Next": "purge"}
            stream.remove(stored.seq)
            self._store(stream, Message(stored.headers["Nats-Schedule-Target"], stored.data, headers))

        due_s = datetime.fromisoformat(at).timestamp() - self._clock.wall_s()
        self._later(max(0.0, due_s), fire)
