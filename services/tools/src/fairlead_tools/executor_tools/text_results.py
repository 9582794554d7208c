"""From what an executor tool got to what the session gets: bounded, the rest in the object store."""

import msgspec

from fairlead_common.bus.objects import Objects
from fairlead_common.protocol.content import ContentBlock, TextBlock, ToolOutcome
from fairlead_tools.executor_tools.secret import HELD

MAX_TEXT_BYTES = 50_000
MAX_TEXT_LINES = 2_000
MAX_DETAILS_BYTES = 16_384
MAX_KEPT_BYTES = 64 << 20

_HEAD_BYTES = 20_000
_HEAD_LINES = 800


async def text_result(
    text: str,
    objects: Objects,
    *,
    is_error: bool = False,
    details: dict[str, object] | None = None,
    more: list[ContentBlock] | None = None,
) -> ToolOutcome:
    """An outcome of words. Text beyond 2,000 lines or 50 KB is cut in the middle and stored whole.

    Args:
        details: left out when they are longer than 16 KiB.
        more: blocks after the text.

    Raises:
        BusUnavailableError: the whole text could not be stored.
    """
    text = HELD.text(text)  # before it is cut, and stored whole
    data = text.encode("utf-8", "replace")
    shown, cut = cut_text(text)
    blocks: list[ContentBlock] = [TextBlock(text=shown)] if shown or not more else []
    kept = details if details and len(msgspec.json.encode(details)) <= MAX_DETAILS_BYTES else {}
    return ToolOutcome(
        status="error" if is_error else "ok",
        content=[*blocks, *(more or [])],
        is_error=is_error,
        output_object=await objects.put(data[:MAX_KEPT_BYTES]) if cut else None,
        output_bytes=len(data) if cut else None,
        details=kept,
    )


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
