"""System events and heartbeats of a session: what waits until the next turn, or begins one. No I/O."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from fairlead_common.content import TextBlock
from fairlead_common.entries import CustomEntry
from fairlead_common.session_marks import (
    HEARTBEAT,
    HEARTBEAT_SKIPPED,
    SYSTEM_EVENT,
    SYSTEM_PREFIX,
)

# Entries that people have no part in: a session is not newer for them.
SILENT = frozenset({SYSTEM_EVENT, HEARTBEAT, HEARTBEAT_SKIPPED})


@dataclass(slots=True, frozen=True)
class Beat:
    """A heartbeat that waits until the session is idle."""

    key: str
    seq: int
    force: bool


@dataclass(slots=True)
class Wakes:
    """By the id of the entry that brought them, in order.

    Fields:
        lines: system events, as the model will see them.
    """

    lines: dict[str, str] = field(default_factory=dict)
    beats: dict[str, Beat] = field(default_factory=dict)

    def note(self, entry: CustomEntry) -> None:
        """Take over an entry of one of their kinds."""
        data = entry.data
        match entry.name:
            case name if name == SYSTEM_EVENT:
                self.lines[entry.id] = line_of(str(data.get("text", "")), entry.ts)
            case name if name == HEARTBEAT:
                seq = data.get("seq")
                beat = Beat(
                    str(data.get("key", "")), seq if isinstance(seq, int) else 0, bool(data.get("force"))
                )
                self.beats[entry.id] = beat
            case name if name == HEARTBEAT_SKIPPED:
                self.beats = self.left_after(entry)

    def left_after(self, skipped: CustomEntry) -> dict[str, Beat]:
        """The heartbeats that still wait once those of this entry do not."""
        keys = skipped.data.get("keys")
        gone = set(keys) if isinstance(keys, list) else set()
        return {each: beat for each, beat in self.beats.items() if beat.key not in gone}

    def say(self, items: list[str]) -> int:
        """A user message was made of these; how many system lines are in it."""
        said = [self.lines.pop(item) for item in items if item in self.lines]
        for item in items:
            self.beats.pop(item, None)
        return len(said)

    def block(self) -> tuple[list[TextBlock], list[str]]:
        """The lines that wait, as the beginning of a user message, and what it is made of."""
        if not self.lines:
            return [], []
        return [TextBlock(text="\n".join(self.lines.values()))], list(self.lines)


def line_of(text: str, at_ms: int) -> str:
    """`System: [2026-03-01 07:00 UTC] text`; what follows a line break is indented."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return f"{SYSTEM_PREFIX}[{at:%Y-%m-%d %H:%M} UTC] " + "\n  ".join(text.strip().splitlines())
