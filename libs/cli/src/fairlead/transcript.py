"""What one prompt led to, read from a session's events: whose words they are, and how it ended.

Events of the session before the prompt was taken up belong to somebody else and are left out. The
log is the truth: deltas only say earlier what an entry will say, and what they missed is filled in
from the entry.
"""

from dataclasses import dataclass, field
from typing import Any

from fairlead.client import Event

Json = dict[str, Any]


@dataclass
class Transcript:
    """A fold over events.

    Args:
        seq: the stream sequence that the prompt was stored with.
    """

    seq: int
    mine: bool = False
    outcome: str | None = None
    error: str | None = None
    error_code: str = ""
    text: str = ""
    model: str = ""
    turns: int = 0
    duration_ms: int = 0
    usage: dict[str, float] = field(default_factory=dict)
    pending: dict[str, Json] = field(default_factory=dict)
    refused: list[Json] = field(default_factory=list)
    _said: dict[str, str] = field(default_factory=dict)
    _next: dict[str, int] = field(default_factory=dict)

    def take(self, event: Event) -> str:
        """Fold one event in; the words that are new."""
        data = event.data
        match event.type:
            case "entry":
                return self._entry(data.get("entry", {}))
            case "message_update" if self.mine:
                return self._delta(data)
            case "approval_request" if self.mine:
                self.pending[str(data["approval_id"])] = data
            case "approval_decision":
                request = self.pending.pop(str(data.get("approval_id")), None)
                if request is not None and data.get("decision") in ("deny", "expired"):
                    self.refused.append({**request, "decision": data["decision"]})
            case "session_deleted":
                self.outcome, self.error = "failed", "the session was deleted"
            case _:
                pass
        return ""

    @property
    def ended(self) -> bool:
        """Whether the run that took the prompt is over."""
        return self.outcome is not None

    def _delta(self, data: Json) -> str:
        message, delta = str(data["message_id"]), data.get("delta", {})
        if data.get("n", 0) != self._next.setdefault(message, 0):
            self._next[message] = -1  # something was missed: the entry will say the rest
            return ""
        self._next[message] += 1
        if delta.get("type") != "text_delta":
            return ""
        words = str(delta.get("text", ""))
        self._said[message] = self._said.get(message, "") + words
        return words

    def _entry(self, entry: Json) -> str:
        match entry.get("type"):
            case "message":
                return self._message(str(entry.get("id")), entry.get("message", {}))
            case "run_start" if self.mine:
                self.model = str(entry.get("model", ""))
            case "run_end":
                self._run_end(entry)
            case "dropped" if self.seq in entry.get("seqs", []):
                self.outcome, self.error = "aborted", str(entry.get("reason", "dropped"))
        return ""

    def _message(self, entry_id: str, message: Json) -> str:
        if message.get("role") == "user" and self.seq in message.get("seqs", []):
            self.mine = True
        if message.get("role") != "assistant" or not self.mine:
            return ""
        self.model = str(message.get("model") or self.model)
        full = "".join(
            block.get("text", "") for block in message.get("content", []) if block["type"] == "text"
        )
        if full:
            self.text = full
        said = self._said.pop(entry_id, "")
        rest = full[len(said) :] if full.startswith(said) else f"\n{full}"
        return rest if not full or full.endswith("\n") else f"{rest}\n"

    def _run_end(self, entry: Json) -> None:
        if not self.mine and self.seq not in entry.get("seqs", []):
            return
        for key, value in entry.get("usage", {}).items():
            self.usage[key] = self.usage.get(key, 0) + value
        self.turns += int(entry.get("turns", 0))
        self.duration_ms += int(entry.get("duration_ms", 0))
        if self.seq in entry.get("seqs", []):
            self.outcome = str(entry["outcome"])
            self.error = entry.get("error")
            self.error_code = str(entry.get("error_code", ""))

    def result(self, session: str) -> Json:
        """The last line of `--output-format json` and `stream-json`."""
        found: Json = {
            "type": "result",
            "outcome": self.outcome or "unknown",
            "text": self.text,
            "session": session,
            "usage": self.usage,
            "model": self.model,
            "turns": self.turns,
            "duration_ms": self.duration_ms,
        }
        if self.error:
            found["error"] = self.error
        if self.error_code:
            found["error_code"] = self.error_code
        if self.refused or self.pending:
            found["approvals"] = [
                {key: request.get(key) for key in ("approval_id", "tool", "arguments", "why", "decision")}
                for request in [*self.refused, *self.pending.values()]
            ]
        return found
