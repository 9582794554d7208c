"""Entries that move the end of the conversation, or shorten what the model is shown of it.

Nothing is removed from the log: another branch, or what a summary replaces, stays where it is.
"""

from typing import Literal

import msgspec

from fairlead_common.protocol.content import ContentBlock, Usage
from fairlead_common.protocol.entry_base import EntryBase
from fairlead_common.protocol.plans import PlanStep
from fairlead_common.protocol.server_prompts import PromptOrigin

BranchAction = Literal["navigate", "edit", "regenerate"]
# manual: a person asked; threshold: the window was nearly full; overflow: a request was refused as too long.
CompactionCause = Literal["manual", "threshold", "overflow"]


class Stretch(msgspec.Struct, frozen=True):
    """Entries of a branch that follow one another in the log: from one record to an entry.

    Fields:
        first, last: stream sequences of records.
        until: id of the last entry, which is in the record `last`.
    """

    first: int
    last: int
    until: str


class BranchRequestEntry(EntryBase, frozen=True, kw_only=True, omit_defaults=True, tag="branch_request"):
    """A request to go on from another entry was accepted. It ends the open run; then it is carried out.

    A `navigate` entry carries it out, or a `dropped` entry that names it says why not.

    Fields:
        entry: where the conversation goes on: behind it (`navigate`), with other words instead of this user
            message (`edit`), or with another reply to it or instead of it (`regenerate`). Empty with
            `regenerate`: the last user message.
        content: of the message that `edit` says instead.
        summarize: tell the model what is left behind, in a summary.
        mail_seq, key, sender, reply_to, untrusted: of an `edit`, as in `QueuedEntry`.
    """

    action: BranchAction
    entry: str
    mail_seq: int
    content: list[ContentBlock] = []
    summarize: bool = False
    key: str | None = None
    sender: str | None = None
    reply_to: str | None = None
    untrusted: bool = False


class NavigateEntry(EntryBase, frozen=True, kw_only=True, omit_defaults=True, tag="navigate"):
    """The conversation goes on behind another entry, its parent.

    Fields:
        left: id of the entry before it in the log: the end of the branch that is left.
        path: the entries from the root to the parent.
        request: the `branch_request` that it carries out.
        action: of that request. After `edit` its content is said, after `regenerate` the model is asked.
        summary: of the branch that is left; the model is shown it. Empty: none.
        usage: of the calls that wrote the summary. model: that wrote it.
        counted: as in `CompactionEntry`.
        untrusted, server_prompt: of the message that an `edit` replaces, for the one that it says.
    """

    left: str
    path: list[Stretch]
    request: str
    action: BranchAction
    summary: str = ""
    model: str = ""
    usage: Usage = Usage()
    counted: bool = False
    untrusted: bool = False
    server_prompt: PromptOrigin | None = None


class ForkEntry(EntryBase, frozen=True, kw_only=True, omit_defaults=True, tag="fork"):
    """The session begins with the conversation of another one, up to one of its entries.

    Fields:
        origin: id of that session; empty: a client sent the conversation. entry: in it; empty: its end.
        object: in the object store: JSON, a list of `[entry id, message]`.
        untrusted, private, secret: what the other session had read.
        plan: of its agent before the first of these messages.
    """

    origin: str
    entry: str
    object: str
    untrusted: bool = False
    private: bool = False
    secret: bool = False
    plan: list[PlanStep] = []


class LabelEntry(EntryBase, frozen=True, kw_only=True, omit_defaults=True, tag="label"):
    """A name for an entry, for people. An empty one takes it away."""

    entry: str
    label: str


class CompactRequestEntry(EntryBase, frozen=True, kw_only=True, omit_defaults=True, tag="compact_request"):
    """A person asked to compact the conversation.

    A `compaction` entry carries it out, or a `dropped` entry that names it says why not.

    Fields:
        instructions: what the summary should look at.
    """

    instructions: str = ""
    sender: str | None = None


class CompactionEntry(EntryBase, frozen=True, kw_only=True, omit_defaults=True, tag="compaction"):
    """The model is shown a summary instead of all messages before `first_kept`.

    Fields:
        first_kept: id of the entry of the first message that it is still shown.
        summary: text.
        files_read, files_modified: paths, carried over from earlier summaries.
        tokens_before, tokens_after: about, of the conversation.
        by: name of the model that wrote the summary; empty: it was made without one.
        cause: why. instructions: of the person who asked for it. request: the `compact_request`, if one did.
        usage: of the calls that wrote the summary.
        counted: each of them is in the log by itself, as a `budget_settlement`; sums leave `usage` out.
        plan: of the agent, as it was before `first_kept`; the model is shown it with the summary.
    """

    first_kept: str
    summary: str
    files_read: list[str] = []
    files_modified: list[str] = []
    tokens_before: int = 0
    tokens_after: int = 0
    by: str = ""
    cause: CompactionCause = "manual"
    instructions: str = ""
    request: str = ""
    usage: Usage = Usage()
    counted: bool = False
    plan: list[PlanStep] = []


class CompactionPreparedEntry(
    EntryBase, frozen=True, kw_only=True, omit_defaults=True, tag="compaction_prepared"
):
    """A summary that was written in the background. It takes effect by a later `compaction` entry.

    The fields are those of `CompactionEntry`.
    """

    first_kept: str
    summary: str
    files_read: list[str] = []
    files_modified: list[str] = []
    tokens_before: int = 0
    tokens_after: int = 0
    by: str = ""
    usage: Usage = Usage()
    counted: bool = False


class CompactionUndoneEntry(
    EntryBase, frozen=True, kw_only=True, omit_defaults=True, tag="compaction_undone"
):
    """The model is shown again what the summary of `compaction` stood for. All later messages stay."""

    compaction: str
    sender: str | None = None
