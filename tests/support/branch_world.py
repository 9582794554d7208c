"""A log with branches and summaries, its fold and its tree, in memory."""

from dataclasses import dataclass, field
from typing import Any

from fairlead_common.protocol.branch_entries import (
    CompactionEntry,
    NavigateEntry,
    Stretch,
)
from fairlead_common.protocol.content import AssistantMessage, TextBlock, UserMessage
from fairlead_common.protocol.entries import Entry, MessageEntry
from fairlead_common.session_log.state import SessionState
from fairlead_common.session_log.tree import Tree


@dataclass
class BranchWorld:
    """A log, the fold of it, and its tree."""

    state: SessionState = field(default_factory=lambda: SessionState("s"))
    log: list[tuple[int, Entry]] = field(default_factory=list)
    tree: Tree = field(default_factory=Tree)

    def add(self, kind: type[Any], **fields: Any) -> str:
        seq = len(self.log) * 2 + 1
        entry = kind(**{"id": f"e{seq}", "parent_id": self.state.leaf, **fields})
        self.log.append((seq, entry))
        self.state.apply(entry, seq, 10)
        self.tree.add(entry, seq)
        return f"e{seq}"

    def say(self) -> str:
        words = f"m{len(self.log)}"
        if len(self.log) % 4 == 1:
            return self.add(
                MessageEntry, message=AssistantMessage(content=[TextBlock(text=words)], model="m")
            )
        return self.add(MessageEntry, message=UserMessage(content=[TextBlock(text=words)]))

    def navigate(self, entry: str, summary: str = "") -> str:
        target = self.tree.end(entry)
        path = self.state.place_of(target)
        path = self.tree.branch(target) if path is None else path
        return self.add(
            NavigateEntry,
            parent_id=target,
            left=self.state.leaf,
            path=path,
            request="",
            action="navigate",
            summary=summary,
        )

    def compact(self, kept: int) -> None:
        self.add(CompactionEntry, first_kept=self.state.items[-kept].entry_id, summary="so far")

    def restored(self) -> SessionState:
        """As an owner restores it, from the stretches of the branch alone."""
        branch = SessionState("s", is_branch_only=True)
        branch.undone = set(self.state.undone)
        for stretch in self.state.branch:
            for seq, entry in self._of(stretch):
                branch.apply(entry, seq, 10)
        return branch

    def _of(self, stretch: Stretch) -> list[tuple[int, Entry]]:
        found = [(seq, entry) for seq, entry in self.log if stretch.first <= seq <= stretch.last]
        assert found[-1][1].id == stretch.until
        return found

    def expected(self) -> list[str]:
        """What the parents lead through, from the last entry up."""
        entries = {entry.id: entry for _, entry in self.log}
        chain: list[Entry] = []
        at = self.state.leaf
        while at is not None:
            chain.append(entries[at])
            at = entries[at].parent_id
        shown: list[str] = []
        for entry in reversed(chain):
            match entry:
                case MessageEntry():
                    shown.append(entry.id)
                case NavigateEntry() if entry.summary:
                    shown.append(entry.id)
                case CompactionEntry() if entry.id not in self.state.undone:
                    shown = [entry.id, *shown[shown.index(entry.first_kept) :]]
        return shown

    def shown(self) -> list[str]:
        """What an owner would show the model now."""
        if self.state.lacks_history:
            self.state.take_conversation(self.restored())
        return [item.entry_id for item in self.state.items]
