"""User messages: the one place where input of people, jobs and timers becomes a message."""

from collections.abc import Sequence

from fairlead_common.protocol.content import TextBlock, UserMessage
from fairlead_common.protocol.custom_entries import PROCESS_SENDER
from fairlead_common.protocol.entries import MessageEntry, QueuedEntry
from fairlead_common.protocol.ids import new_id
from fairlead_common.session_log.state import SessionState


def user_message(state: SessionState, said: Sequence[QueuedEntry]) -> MessageEntry:
    """One message of one or more inputs; the system events that wait come first.

    Args:
        state: of the session; nothing of it changes.
        said: at least one input, in order; from the queue, or just received and not in the log yet.
    """
    first, events = said[0], state.wakes.block()
    return MessageEntry(
        id=new_id() if first.id in state.queue else first.id,  # which names the folder of its files
        cursor=max(item.cursor for item in said),
        items=[*events.items, *(item.id for item in said if item.id in state.queue)],
        message=UserMessage(
            content=[*events.content, *(block for item in said for block in item.content)],
            source=first.kind,
            seqs=[item.mail_seq for item in said],
            keys=[item.key for item in said if item.key],
            sender=first.sender,
            reply_to=next((item.reply_to for item in said if item.reply_to), None),
            untrusted=events.untrusted or any(item.untrusted for item in said),
            server_prompt=next((item.server_prompt for item in said if item.server_prompt), None),
        ),
    )


def process_lines(state: SessionState) -> MessageEntry:
    """The message of the system lines that wait: in an open run, or in one that the end of a process begins.

    Args:
        state: of the session; nothing of it changes.
    """
    events = state.wakes.block()
    return MessageEntry(
        id=new_id(),
        items=events.items,
        message=UserMessage(
            content=[*events.content], source="system", sender=PROCESS_SENDER, untrusted=events.untrusted
        ),
    )


def heartbeat_message(state: SessionState, prompt: str, file: str) -> MessageEntry:
    """The message of all heartbeats that are due.

    Args:
        state: of the session; nothing of it changes.
        prompt: of the agent's profile.
        file: the heartbeat file as it is shown to the model; empty if there is none.
    """
    wakes = state.wakes
    events = wakes.block()
    text = f"{prompt}\n\n{file}" if file else prompt
    return MessageEntry(
        id=new_id(),
        items=[*events.items, *wakes.beats],
        message=UserMessage(
            content=[*events.content, TextBlock(text=text)],
            source="system",
            seqs=[beat.seq for beat in wakes.beats.values()],
            keys=[beat.key for beat in wakes.beats.values()],
            sender="heartbeat",
            asked_by=wakes.asked_by,
            untrusted=events.untrusted,
        ),
    )
