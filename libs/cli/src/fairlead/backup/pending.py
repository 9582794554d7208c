"""What a session waits for, by its log and mailbox: calls without result, approvals without decision."""

from dataclasses import dataclass, field, fields

from fairlead_common import subjects as s
from fairlead_common.bus import Record
from fairlead_common.content import AssistantMessage, ToolCallBlock, ToolResultMessage
from fairlead_common.entries import (
    ApprovalEntry,
    ApprovalRequestEntry,
    DeletedEntry,
    Entry,
    EntryBase,
    MessageEntry,
    RunEndEntry,
    RunStartEntry,
)


@dataclass(slots=True)
class Waiting:
    """A session as far as its calls go, after everything that is stored of it.

    Fields:
        phase: as the last entry says for the sweeper: `open`, `parked` or `closed`.
        calls: of the last reply of the model that have no result, neither in the log nor in the mailbox.
        undecided: approval requests that nobody has answered, by the id of their call.
    """

    leaf: EntryBase | None = None
    last_seq: int = 0
    phase: str = "closed"
    cursor: int = 0
    epoch: int = 0
    run_id: str | None = None
    calls: dict[str, ToolCallBlock] = field(default_factory=dict)
    undecided: dict[str, ApprovalRequestEntry] = field(default_factory=dict)

    def note_entry(self, entry: Entry, record: Record) -> None:
        """One record of its log."""
        if isinstance(entry, DeletedEntry):  # what was before it waits for nothing
            self._begin_anew(entry, record)
            return
        self.leaf, self.last_seq = entry, record.seq
        self.phase = record.headers.get(s.H_STATE, self.phase)
        self.cursor = max(self.cursor, entry.cursor)
        self.epoch = max(self.epoch, entry.epoch)
        match entry:
            case MessageEntry(message=AssistantMessage() as message):
                self.calls = {call.call_id: call for call in message.tool_calls}
            case MessageEntry(message=ToolResultMessage() as message):
                self._ended(message.call_id)
            case ApprovalRequestEntry():
                self.undecided[entry.call_id] = entry
            case ApprovalEntry():
                self.undecided.pop(entry.call_id, None)
            case RunStartEntry():
                self.run_id = entry.run_id or entry.id
            case RunEndEntry():
                self.run_id = None
                if entry.outcome != "waiting_approval":
                    self.calls, self.undecided = {}, {}
            case _:
                pass

    def _begin_anew(self, entry: DeletedEntry, record: Record) -> None:
        fresh = Waiting(last_seq=record.seq, cursor=max(self.cursor, entry.cursor))
        for each in fields(self):
            setattr(self, each.name, getattr(fresh, each.name))

    def note_mail(self, kind: str, key: str, seq: int) -> None:
        """One message of its mailbox; to be told after the log."""
        if seq <= self.cursor:
            return
        if kind == "result":
            self._ended(key)
        elif kind == "approval":
            for call_id in [call for call, each in self.undecided.items() if each.id == key]:
                del self.undecided[call_id]

    def _ended(self, call_id: str) -> None:
        self.calls.pop(call_id, None)
        self.undecided.pop(call_id, None)

    def doubtful(self, idempotent: frozenset[str]) -> list[ToolCallBlock]:
        """Calls that would start by themselves, and may have been started before.

        A call that waits for a person starts when that person says so; one without a host or without
        arguments never does.
        """
        return [
            call
            for call in self.calls.values()
            if call.call_id not in self.undecided
            and call.host
            and call.arguments is not None
            and call.name not in idempotent
        ]
