"""The answer to one prompt, read from the log and the live events of its session."""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from fairlead_common.content import AssistantMessage, ThinkingBlock, Usage, UserMessage
from fairlead_common.entries import (
    ApprovalEntry,
    ApprovalRequestEntry,
    DroppedEntry,
    Entry,
    MessageEntry,
    QueuedEntry,
    RunEndEntry,
    RunStartEntry,
)
from fairlead_common.events import LiveEvent, MessageUpdate
from fairlead_gateway.problems import Problem

_SEPARATOR: Final = "\n\n"

# A client that tries again would start the run again: it must not do so by itself.
_DO_NOT_RETRY: Final = {"x-should-retry": "false"}
_FAILURES: Final = {
    "failed": (502, "run_failed"),
    "aborted": (409, "run_aborted"),
    "timed_out": (504, "run_timed_out"),
    "turn_limit": (422, "turn_limit"),
    "budget": (429, "budget_exceeded"),
    "unknown": (502, "run_unknown"),
}


class Piece(NamedTuple):
    """More of the answer."""

    kind: Literal["content", "reasoning_content"]
    text: str


class Answer:
    """Folds what happens in a session until the prompt with sequence `seq` is answered.

    Fields:
        finish: OpenAI's finish_reason, once the answer is complete.
        problem: why there is no answer, once that is known.
        item: the queued item that the prompt waits as; None before and after.
        begun: the prompt is part of the conversation, so the open run is about it.
    """

    def __init__(self, seq: int) -> None:
        self._seq = seq
        self._begun_at = 0
        self._run_id: str | None = None
        self._usage = Usage()
        self._said = False
        self._approvals: dict[str, ApprovalRequestEntry] = {}
        self._message = ""  # the one that is being written
        self._whole: set[str] = set()  # those that the log has: what is heard of them comes late
        self._pieces_seen = 0
        self._text: list[str] = []
        self._thought = False
        self._gap = False
        self.finish: Literal["stop", "length"] | None = None
        self.problem: Problem | None = None
        self.item: str | None = None

    @property
    def begun(self) -> bool:
        """Whether the prompt is part of the conversation."""
        return self._begun_at > 0

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.finish is not None or self.problem is not None

    @property
    def usage(self) -> Usage:
        """Of all turns that belong to the answer."""
        return self._usage

    def live(self, event: LiveEvent) -> Iterator[Piece]:
        """What a live event adds."""
        if self.done or not self.begun or not isinstance(event, MessageUpdate):
            return
        if event.log_seq and event.log_seq < self._begun_at:
            return  # of an answer to something else
        if event.message_id in self._whole:
            return
        if event.message_id != self._message:
            if event.n:  # its beginning was not heard: the log will have it whole
                return
            self._open(event.message_id)
        self._gap = self._gap or event.n != self._pieces_seen
        self._pieces_seen += 1
        if self._gap:
            return
        if event.delta.type == "text_delta":
            yield from self._say(event.delta.text)
        elif event.delta.type == "thinking_delta":
            self._thought = True
            yield Piece("reasoning_content", event.delta.text)

    def entry(self, seq: int, entry: Entry) -> Iterator[Piece]:
        """What a log entry adds, or decides."""
        if self.done:
            return
        match entry:
            case QueuedEntry() if entry.mail_seq == self._seq:
                self.item = entry.id
            case DroppedEntry() if self._seq in entry.seqs or self.item in entry.items:
                self.problem = Problem(
                    409, f"the prompt was dropped: {entry.reason}", code="dropped", headers=_DO_NOT_RETRY
                )
            case MessageEntry(message=UserMessage() as message) if self._seq in message.seqs:
                self._begun_at, self._run_id, self.item = seq, entry.run_id, None
            case RunEndEntry() if self.begun or self._seq in entry.seqs:
                yield from self._end(entry)
            case _ if self.begun:
                yield from self._ours(entry)
            case _:
                return

    def _ours(self, entry: Entry) -> Iterator[Piece]:
        match entry:
            case MessageEntry(message=AssistantMessage() as message):
                yield from self._reply(entry.id, message)
            case RunStartEntry():
                self._run_id = entry.run_id
            case ApprovalRequestEntry():
                self._approvals[entry.id] = entry
            case ApprovalEntry():
                self._approvals.pop(entry.approval_id, None)
            case _:
                return

    def _reply(self, message_id: str, message: AssistantMessage) -> Iterator[Piece]:
        self._whole.add(message_id)
        if message_id != self._message:
            self._open(message_id)
        sent = "".join(self._text)
        if not sent and not self._thought:
            thoughts = "".join(b.text for b in message.content if isinstance(b, ThinkingBlock))
            if thoughts:
                yield Piece("reasoning_content", thoughts)
        if message.text.startswith(sent):
            yield from self._say(message.text[len(sent) :])
        else:  # what was shown of it is not what it became
            self._open(message_id)
            yield from self._say(message.text)
        self._usage = self._usage.plus(message.usage)
        self._open("")
        if not message.tool_calls and message.stop_reason in ("stop", "length"):
            self.finish = "length" if message.stop_reason == "length" else "stop"

    def _end(self, entry: RunEndEntry) -> Iterator[Piece]:
        if self._usage == Usage():
            self._usage = entry.usage
        if entry.outcome == "completed":
            self.finish = "stop"
        elif entry.outcome == "waiting_approval":
            yield from self._say(self._waiting_text())
            self.finish = "stop"
        else:
            status, code = _FAILURES.get(entry.outcome, _FAILURES["failed"])  # one of a later version
            what = entry.outcome.replace("_", " ")
            text = f"the run ended: {what}" + (f": {entry.error}" if entry.error else "")
            self.problem = Problem(status, text, code=code, headers=_DO_NOT_RETRY)

    def _waiting_text(self) -> str:
        self._open("")
        lines = [
            "This waits for your approval. Answer in the web application, or with `fairlead approve <id>`:"
        ]
        for request in self._approvals.values():
            arguments = msgspec.json.encode(request.arguments).decode()
            shown = arguments if len(arguments) <= 500 else f"{arguments[:500]}..."
            lines.append(
                f"- `{request.id}`: {request.tool} {shown} (in {request.workspace or 'the workspace'})"
            )
        return "\n".join(lines)

    def _open(self, message_id: str) -> None:
        """Another message begins; one that was not finished was thrown away by the session."""
        self._message = message_id
        self._pieces_seen = 0
        self._text = []
        self._thought = self._gap = False

    def _say(self, text: str) -> Iterator[Piece]:
        if not text:
            return
        first, self._said = not self._text and self._said, True
        self._text.append(text)
        yield Piece("content", _SEPARATOR + text if first else text)
