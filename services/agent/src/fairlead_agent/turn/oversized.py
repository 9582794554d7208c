"""What a model is shown of a message that is too large for its window. Pure."""

from typing import Final

import msgspec

from fairlead_common.protocol.content import ContentBlock, Message, TextBlock, UserMessage
from fairlead_common.session_log.conversation import is_said

SHARE: Final = 0.5  # of what a conversation can have: a message with more is shown in part
_SHOWN_SHARE: Final = 0.1
_MIN_SHOWN_CHARS: Final = 400
_BYTES_PER_TOKEN: Final = 4
FOLDER: Final = ".fairlead/inbox"


def path_of(entry_id: str) -> str:
    """Of the file with the whole text, in the workspace."""
    return f"{FOLDER}/{entry_id}/input.txt"


def oversized_text(message: Message, usable: int) -> str:
    """The words of a message that is too large; empty: it is not.

    Args:
        usable: tokens that a conversation can have; 0: unknown.
    """
    if usable <= 0 or not isinstance(message, UserMessage) or not is_said(message):
        return ""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    most = usable * SHARE * _BYTES_PER_TOKEN
    if sum(map(len, texts)) * 4 <= most:  # at most four bytes a character
        return ""
    return "\n\n".join(texts) if sum(len(msgspec.json.encode(text)) for text in texts) > most else ""


def in_part(message: Message, entry_id: str, usable: int) -> Message:
    """The message with head and tail of its words, and the name of the file that has all of them."""
    text = oversized_text(message, usable)
    if not text or not isinstance(message, UserMessage):
        return message
    # In characters that have one byte each; others have up to six, and are fewer of them in as many tokens.
    chars = max(_MIN_SHOWN_CHARS, int(usable * _SHOWN_SHARE * _BYTES_PER_TOKEN))
    width = len(msgspec.json.encode(text)) / len(text)
    half = max(1, int(chars / width / 2))
    note = (
        f"[This message has {len(text)} characters, too many to be shown at once. All of it is in the file "
        f"{path_of(entry_id)} of the workspace: read it in parts, or "
        "search in it. Here are its begin and its end.]"
    )
    gap = f"\n\n[... {len(text) - 2 * half} characters are left out here ...]\n\n"
    shown: list[ContentBlock] = [TextBlock(text=f"{note}\n\n{text[:half]}{gap}{text[-half:]}")]
    others = [block for block in message.content if not isinstance(block, TextBlock)]
    return msgspec.structs.replace(message, content=[*shown, *others])
