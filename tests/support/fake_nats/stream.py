"""One stream in memory: what it stores, refuses, replaces and forgets, as nats-server 2.15 does."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from heapq import heappop, heappush
from itertools import takewhile
from typing import Any, NamedTuple

from tests.support.fake_nats.matching import beginnings, mapped, matches

Headers = Mapping[str, str]
Config = dict[str, Any]

_SECOND = 1_000_000_000
_DEFAULTS: Config = {
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_age": 0,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msg_size": -1,
    "max_msgs_per_subject": -1,
    "max_consumers": -1,
    "num_replicas": 1,
    "duplicate_window": 120 * _SECOND,
    "allow_direct": False,
    "allow_rollup_hdrs": False,
    "allow_msg_ttl": False,
    "deny_delete": False,
    "deny_purge": False,
}


class RefusedError(Exception):
    """The server refuses a request, with these words and numbers."""

    def __init__(self, code: int, err_code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.err_code = err_code

    @property
    def body(self) -> dict[str, object]:
        """As it stands in an answer."""
        return {"code": self.code, "err_code": self.err_code, "description": str(self)}


class Clock(NamedTuple):
    """Time of the event loop, in seconds, for durations; and milliseconds since 1970, for dates."""

    now: Callable[[], float]
    wall_s: Callable[[], float]


class Stored(NamedTuple):
    """One message.

    Fields:
        expires: time of the clock from which on it is gone.
        previous: the last sequence on its subject when it was stored, 0 if there was none.
    """

    seq: int
    subject: str
    data: bytes
    headers: Headers
    time: str
    expires: float | None
    previous: int

    @property
    def size(self) -> int:
        return len(self.subject) + len(self.data) + sum(len(k) + len(v) + 4 for k, v in self.headers.items())


class Stream:
    """A stream. `store` is the one way in."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = {**_DEFAULTS, **config}
        self._clock = clock
        self.created = _date(clock.wall_s())
        self.messages: dict[int, Stored] = {}  # by sequence, in order
        self._by_subject: dict[str, list[int]] = {}
        self._below: dict[str, list[int]] = {}  # by what subjects begin with, for patterns that end with `>`
        self.last_seq = 0
        self._bytes = 0
        self._ids: dict[str, tuple[int, float]] = {}  # by Nats-Msg-Id: sequence, until when it counts
        self._expiring: list[tuple[float, int]] = []  # a heap, also of messages that are gone

    @property
    def name(self) -> str:
        return str(self.config["name"])

    def takes(self, subject: str) -> bool:
        """Whether messages to this subject are stored here."""
        patterns = tuple(self.config.get("subjects", ()))
        return subject.startswith(beginnings(patterns)) and any(matches(each, subject) for each in patterns)

    # -- writing -------------------------------------------------------------

    def store(self, subject: str, data: bytes, headers: Headers) -> tuple[Stored, bool]:
        """What is stored, and whether it was before (a message id that was seen).

        Raises:
            RefusedError: nothing was stored.
        """
        self.expire()
        change = self.config.get("subject_transform")
        if change:
            subject = mapped(change["src"], change["dest"], subject) or subject
        now = self._clock.now()
        ttl_s = _ttl_of(headers)
        if ttl_s > 0 and not self.config["allow_msg_ttl"]:
            raise RefusedError(400, 10166, "per-message TTL is disabled")
        self._check_expected(subject, headers)
        if message_id := headers.get("Nats-Msg-Id"):
            seq, until = self._ids.get(message_id, (0, 0.0))
            if until > now:
                return self.messages.get(seq) or Stored(seq, subject, b"", {}, "", None, 0), True
        rollup = headers.get("Nats-Rollup")
        if rollup and not self.config["allow_rollup_hdrs"]:
            raise RefusedError(400, 10111, "rollup not permitted")
        if rollup and rollup not in ("sub", "all"):
            raise RefusedError(400, 10111, f'rollup value invalid: "{rollup}"')
        if ttl_s < 0:
            raise RefusedError(400, 10165, "invalid per-message TTL")
        there = self._by_subject.get(subject)
        message = Stored(
            seq=self.last_seq + 1,
            subject=subject,
            data=data,
            headers=headers,
            time=_date(self._clock.wall_s()),
            expires=now + ttl_s if 0 < ttl_s < math.inf else None,
            previous=there[-1] if there else 0,
        )
        self._make_room(message)
        self._insert(message)
        if message_id:
            self._ids[message_id] = (message.seq, now + self.config["duplicate_window"] / _SECOND)
        if rollup:
            self.purge(subject if rollup == "sub" else "", before=message.seq)
        return message, False

    def _check_expected(self, subject: str, headers: Headers) -> None:
        if (stream := headers.get("Nats-Expected-Stream")) and stream != self.name:
            raise RefusedError(400, 10060, "expected stream does not match")
        expected = headers.get("Nats-Expected-Last-Subject-Sequence")
        if expected is not None:
            found = self.last(headers.get("Nats-Expected-Last-Subject-Sequence-Subject", subject))
            actual = found.seq if found else 0
            if int(expected) != actual:
                raise RefusedError(400, 10071, f"wrong last sequence: {actual}")
        last = headers.get("Nats-Expected-Last-Sequence")
        if last is not None and int(last) != self.last_seq:
            raise RefusedError(400, 10071, f"wrong last sequence: {self.last_seq}")

    def _make_room(self, message: Stored) -> None:
        """Remove what the limits of a stream that discards old messages push out.

        Raises:
            RefusedError: the stream discards new ones.
        """
        config = self.config
        per_subject = config["max_msgs_per_subject"]
        there = self._by_subject.get(message.subject, [])
        if 0 < config["max_msg_size"] < message.size:
            raise RefusedError(400, 10054, "message size exceeds maximum allowed")
        if config["discard"] == "new":
            if config.get("discard_new_per_subject") and 0 < per_subject <= len(there):
                raise RefusedError(503, 10077, "maximum messages per subject exceeded")
            replaces = 0 < per_subject <= len(there)
            if 0 < config["max_msgs"] <= len(self.messages) and not replaces:
                raise RefusedError(503, 10077, "maximum messages exceeded")
            freed = self.messages[there[0]].size if replaces else 0
            if 0 < config["max_bytes"] < self._bytes - freed + message.size:
                raise RefusedError(503, 10077, "maximum bytes exceeded")
        while 0 < per_subject <= len(there):
            self.remove(there[0])
        while 0 < config["max_msgs"] <= len(self.messages):
            self.remove(next(iter(self.messages)))
        while self.messages and 0 < config["max_bytes"] < self._bytes + message.size:
            self.remove(next(iter(self.messages)))

    def _insert(self, message: Stored) -> None:
        self.last_seq = message.seq
        self.messages[message.seq] = message
        self._by_subject.setdefault(message.subject, []).append(message.seq)
        for prefix in _prefixes(message.subject):
            self._below.setdefault(prefix, []).append(message.seq)
        self._bytes += message.size
        max_age = self.config["max_age"]
        ends = [message.expires] if message.expires is not None else []
        if max_age:
            ends.append(self._clock.now() + max_age / _SECOND)
        if ends:
            heappush(self._expiring, (min(ends), message.seq))

    def remove(self, seq: int) -> None:
        """Forget one message."""
        message = self.messages.pop(seq, None)
        if message is None:
            return
        self._bytes -= message.size
        _forget(self._by_subject, message.subject, seq)
        for prefix in _prefixes(message.subject):
            _forget(self._below, prefix, seq)

    def purge(self, pattern: str, *, before: int | None = None, keep: int = 0) -> int:
        """How many messages that match were removed; `before`: of those with a lower sequence."""
        self.expire()
        found = [m.seq for m in self.matching(pattern or ">") if before is None or m.seq < before]
        gone = found[: len(found) - keep] if keep else found
        for seq in gone:
            self.remove(seq)
        return len(gone)

    def expire(self) -> None:
        """Forget what is over its time."""
        now = self._clock.now()
        while self._expiring and self._expiring[0][0] <= now:
            self.remove(heappop(self._expiring)[1])

    # -- reading -------------------------------------------------------------

    def matching(self, pattern: str, start: int = 0) -> list[Stored]:
        """The messages from sequence `start` on whose subject matches, in order."""
        self.expire()
        found = self._indexed(pattern)
        if found is None:
            found = list(takewhile(lambda seq: seq >= start, self._from_end(pattern)))[::-1]
        return [self.messages[seq] for seq in found[bisect_left(found, start) :]]

    def last(self, pattern: str) -> Stored | None:
        """The last message whose subject matches."""
        self.expire()
        found = self._indexed(pattern)
        seq = next(self._from_end(pattern), 0) if found is None else found[-1] if found else 0
        return self.messages.get(seq)

    def _indexed(self, pattern: str) -> list[int] | None:
        """The sequences of the messages whose subject matches, in order; None: they have to be looked for."""
        if "*" in pattern or pattern == ">":
            return None
        is_open = pattern.endswith(".>")
        return (self._below if is_open else self._by_subject).get(pattern.removesuffix(".>"), [])

    def _from_end(self, pattern: str) -> Iterator[int]:
        """The same, the last one first."""
        return (seq for seq in reversed(self.messages) if matches(pattern, self.messages[seq].subject))

    def subjects(self, pattern: str) -> Iterator[str]:
        """The subjects under which something is stored."""
        self.expire()
        return (subject for subject in list(self._by_subject) if matches(pattern, subject))

    def republished(self, message: Stored) -> tuple[str, dict[str, str]] | None:
        """Where a message is told again when it was stored, and with which headers."""
        rule = self.config.get("republish")
        subject = mapped(rule.get("src") or ">", rule["dest"], message.subject) if rule else None
        if subject is None:
            return None
        return subject, {**self.headers_of(message), "Nats-Last-Sequence": str(message.previous)}

    def headers_of(self, message: Stored) -> dict[str, str]:
        """The headers of a message, with those that say where it is stored."""
        return {
            **message.headers,
            "Nats-Stream": self.name,
            "Nats-Subject": message.subject,
            "Nats-Sequence": str(message.seq),
            "Nats-Time-Stamp": message.time,
        }

    def info(self, subjects_filter: str = "") -> dict[str, object]:
        """What `STREAM.INFO` answers."""
        self.expire()
        state: dict[str, object] = {
            "messages": len(self.messages),
            "bytes": self._bytes,
            "first_seq": next(iter(self.messages), self.last_seq + 1 if self.last_seq else 0),
            "last_seq": self.last_seq,
            "num_subjects": len(self._by_subject),
        }
        if subjects_filter:
            state["subjects"] = {each: len(self._by_subject[each]) for each in self.subjects(subjects_filter)}
        return {"config": self.config, "created": self.created, "state": state}


def _prefixes(subject: str) -> Iterator[str]:
    """All that it begins with and goes on from: `a` and `a.b` of `a.b.c`."""
    end = subject.find(".")
    while end >= 0:
        yield subject[:end]
        end = subject.find(".", end + 1)


def _forget(index: dict[str, list[int]], key: str, seq: int) -> None:
    there = index[key]
    del there[bisect_left(there, seq)]
    if not there:
        del index[key]


def _ttl_of(headers: Headers) -> float:
    """How many seconds a message is to live: 0 if nothing is said, less if what is said makes no sense."""
    text = headers.get("Nats-TTL")
    if text is None:
        return 0.0
    if text == "never":
        return math.inf
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        return -1.0
    return seconds if seconds >= 1 else -1.0


def _date(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
