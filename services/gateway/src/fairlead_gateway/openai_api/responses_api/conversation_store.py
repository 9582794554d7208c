"""What a conversation has beside its session: metadata, items that its client added, and items it took away.

Keys of the bucket `sessions`:

    conv.<session>.about         metadata, and whose it is; replaced by each update
    conv.<session>.i-<item>      an added item; created once
    conv.<session>.d-<digest>    the item with this digest is shown no more; created once

Added items wait for the next response, which brings them with its input. Which those are follows from their
sequences: the mail of each response names the last one that it brought.
"""

import hashlib
from typing import NamedTuple

import msgspec

from fairlead_common.bus.buckets import Bucket, is_marker
from fairlead_common.errors import ConflictError
from fairlead_common.protocol import subjects
from fairlead_gateway.gateway import Gateway
from fairlead_gateway.openai_api.responses_api.request import InputItem

_ABOUT = "about"


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a conversation that was made with anything in it. `created_at`: seconds since 1970."""

    owner: str
    created_at: int
    metadata: dict[str, str] = {}


class AddedItem(NamedTuple):
    """An item that the client added. `seq`: its place among all of them."""

    seq: int
    id: str
    item: InputItem


class StoredConversation(NamedTuple):
    """All that is kept of one conversation. `gone`: digests of items that are shown no more."""

    about: About | None
    added: list[AddedItem]
    gone: set[str]

    def shows(self, item_id: str) -> bool:
        """Whether its client did not take the item away."""
        return _digest(item_id) not in self.gone

    def waiting(self, after: int) -> list[AddedItem]:
        """The added items that no response has brought; `after`: the last one that one has."""
        return [each for each in self.added if each.seq > after and self.shows(each.id)]


def _digest(item_id: str) -> str:
    return hashlib.sha256(item_id.encode()).hexdigest()[:32]


def _bucket(gateway: Gateway) -> Bucket:
    return Bucket(gateway.bus, subjects.BUCKET_SESSIONS)


async def read_conversation(gateway: Gateway, session: str) -> StoredConversation:
    """All that is kept; empty if nothing is."""
    bucket = _bucket(gateway)
    prefix = f"$KV.{bucket.name}.conv.{session}."
    about, added, gone = None, [], set()
    async for record in gateway.bus.read(bucket.stream, f"{prefix}*"):
        key = record.subject.removeprefix(prefix)
        if is_marker(record):
            continue
        if key == _ABOUT:
            about = msgspec.json.decode(record.data, type=About)
        elif key.startswith("i-"):
            item = msgspec.json.decode(record.data, type=InputItem)
            added.append(AddedItem(record.seq, item.id or "", item))
        elif key.startswith("d-"):
            gone.add(key.removeprefix("d-"))
    return StoredConversation(about, added, gone)


async def describe(gateway: Gateway, session: str, about: About) -> None:
    """Store what is told of a conversation."""
    await _bucket(gateway).put(f"conv.{session}.{_ABOUT}", msgspec.json.encode(about))


async def add(gateway: Gateway, session: str, items: list[InputItem]) -> None:
    """Store items, in order; each has its id."""
    for item in items:
        key = f"conv.{session}.i-{(item.id or '').removeprefix('msg_')}"
        await _bucket(gateway).create(key, msgspec.json.encode(item))


async def take_away(gateway: Gateway, session: str, item_id: str) -> None:
    """Have an item not be shown any more. What was said stays in the session."""
    try:
        await _bucket(gateway).create(f"conv.{session}.d-{_digest(item_id)}", b"{}")
    except ConflictError:
        return


async def forget(gateway: Gateway, session: str) -> None:
    """Remove all that is kept."""
    bucket = _bucket(gateway)
    prefix = f"$KV.{bucket.name}."
    records = gateway.bus.read(bucket.stream, f"{prefix}conv.{session}.*")
    keys = [record.subject.removeprefix(prefix) async for record in records]
    for key in keys:
        await bucket.delete(key)
