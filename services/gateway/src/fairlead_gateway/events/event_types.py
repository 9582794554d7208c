"""The events of a session's stream, as a type: what clients decode is generated from it."""

from typing import Annotated, Any, Final, Union

import msgspec

from fairlead_common.protocol.entries import Entry, LaterEntry
from fairlead_common.protocol.events import CaughtUp, DerivedEvent, LiveEvent, SessionDeleted
from fairlead_common.protocol.schemas import reference

# Every entry that this version writes. `LaterEntry` stands for those of later versions and has no schema.
KNOWN_ENTRY: Final[Any] = Union[tuple(kind for kind in Entry.__args__ if kind is not LaterEntry)]  # noqa: UP007


class EntryEvent(msgspec.Struct, frozen=True, kw_only=True, tag="entry"):
    """An entry of the log: the truth. It replaces the partial message with its id.

    Fields:
        seq: sequence in the stream SESSIONS.
        index: of the entry in its record, from 0; missing where the record holds no other.
    """

    seq: int
    index: int | msgspec.UnsetType = msgspec.UNSET
    entry: Annotated[dict[str, object], msgspec.Meta(extra_json_schema=reference("Entry"))]


SESSION_EVENT: Final[Any] = EntryEvent | DerivedEvent | LiveEvent | CaughtUp | SessionDeleted
