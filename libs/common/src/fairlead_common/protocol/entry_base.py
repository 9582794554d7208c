"""What all entries of a session's log have."""

import msgspec


class EntryBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all entries have.

    Fields:
        parent_id: the entry that it follows. This makes the log a tree: the conversation is what lies between
            its root and its last entry.
        ts: milliseconds since 1970, UTC, for people and models only.
        epoch: of the owner that wrote it.
        cursor: stream sequence of the last mail that is consumed once this entry is stored.
    """

    id: str
    parent_id: str | None = None
    ts: int = 0
    epoch: int = 0
    cursor: int = 0
    run_id: str | None = None
