"""How much of what a tool says the model gets: the beginning and the end, with what is left out told."""

from typing import Final

MAX_TEXT_BYTES: Final = 50_000
MAX_TEXT_LINES: Final = 2_000
MAX_KEPT_BYTES: Final = 64 << 20  # of the whole text, in the object store

_HEAD_BYTES: Final = 20_000
_HEAD_LINES: Final = 800


def cut_text(text: str) -> tuple[str, bool]:
    """The text as the model gets it, and whether something was left out of its middle."""
    data = text.encode("utf-8", "replace")
    lines = data.splitlines(keepends=True)
    if len(data) <= MAX_TEXT_BYTES and len(lines) <= MAX_TEXT_LINES:
        return data.decode(), False
    head = _whole(b"".join(lines[:_HEAD_LINES])[:_HEAD_BYTES])
    rest = data[len(head.encode()) :].splitlines(keepends=True)
    tail = _whole(b"".join(rest[_HEAD_LINES - MAX_TEXT_LINES :])[_HEAD_BYTES - MAX_TEXT_BYTES :])
    left_bytes = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[... {left_bytes} bytes left out here ...]\n{tail}", True


def _whole(data: bytes) -> str:
    """Without the halves of characters at its ends."""
    return data.decode("utf-8", "ignore")
