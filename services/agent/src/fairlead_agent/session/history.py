"""What was said before: read from the log again where the state of a session does not have it."""

from collections.abc import AsyncIterator

import msgspec

from fairlead_agent.session.owner import Owner
from fairlead_common.errors import BadMessageError, NotFoundError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.branch_entries import ForkEntry, Stretch
from fairlead_common.protocol.content import Message
from fairlead_common.protocol.entries import DeletedEntry, Entry
from fairlead_common.session_log.conversation import Item
from fairlead_common.session_log.records import Placed, entries_in
from fairlead_common.session_log.state import SessionState
from fairlead_common.session_log.tree import Tree

_forked: msgspec.json.Decoder[list[tuple[str, Message]]] = msgspec.json.Decoder(list[tuple[str, Message]])


async def restore(owner: Owner) -> None:
    """Read the session's branch again, from its root.

    A summary that is in force counts, so no more is kept than the model is shown.
    """
    state = owner.state
    branch = SessionState(state.session, is_branch_only=True)
    branch.undone = set(state.undone)
    for stretch in state.branch:
        async for entry, placed in _stretch(owner, stretch):
            branch.apply(entry, placed.seq, len(placed.data))
            if isinstance(entry, ForkEntry):
                branch.items = await _inherited(owner, entry, stretch.until)
    state.take_conversation(branch)


async def read_tree(owner: Owner) -> Tree:
    """The tree of all entries of the session."""
    tree = Tree()
    async for entry, placed in _entries(owner, owner.state.born_seq + 1):
        tree.add(entry, placed.seq)
    return tree


async def _stretch(owner: Owner, stretch: Stretch) -> AsyncIterator[tuple[Entry, Placed]]:
    async for entry, placed in _entries(owner, stretch.first):
        if placed.seq > stretch.last:
            return
        yield entry, placed
        if entry.id == stretch.until:
            return


async def _entries(owner: Owner, start: int) -> AsyncIterator[tuple[Entry, Placed]]:
    """All entries from the record `start` on that can be read; see `Owner.read`."""
    log_subject = subjects.session_log(owner.session)
    async for record in owner.bus.read(subjects.SESSIONS, log_subject, start=max(1, start)):
        try:
            data = await owner.objects.unpack(record.data, record.headers)
            found = [(each.decoded(), each) for each in entries_in(record.seq, data, record.headers)]
        except (BadMessageError, NotFoundError):
            continue  # the owner has skipped it, too
        for entry, placed in found:
            if not isinstance(entry, DeletedEntry):
                yield entry, placed


async def _inherited(owner: Owner, fork: ForkEntry, until: str) -> list[Item]:
    """The conversation that a fork began with, up to one of its messages; all of it without that."""
    data = await owner.objects.get(fork.object)
    items = [Item(entry_id, message) for entry_id, message in _forked.decode(data)]
    last = next((i for i in range(len(items) - 1, -1, -1) if items[i].entry_id == until), len(items) - 1)
    return items[: last + 1]
