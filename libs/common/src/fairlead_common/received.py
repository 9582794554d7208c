"""What the bus hands over: a stored record, and a message as it was delivered."""

from typing import NamedTuple

Headers = dict[str, str]


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
