"""From what an executor tool got to what the session gets: bounded, the rest in the object store."""

import msgspec

from fairlead_common.bus.objects import Objects
from fairlead_common.protocol.content import ContentBlock, TextBlock, ToolOutcome
from fairlead_common.protocol.shown_text import MAX_KEPT_BYTES, cut_text
from fairlead_common.undecodable import is_nested_deeper
from fairlead_tools.executor_tools.secret import HELD

MAX_DETAILS_BYTES = 16_384


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
        details: left out when they are longer than 16 KiB, or nested too deeply.
        more: blocks after the text.

    Raises:
        BusUnavailableError: the whole text could not be stored.
    """
    text = HELD.text(text)  # before it is cut, and stored whole
    data = text.encode("utf-8", "replace")
    shown, cut = cut_text(text)
    blocks: list[ContentBlock] = [TextBlock(text=shown)] if shown or not more else []
    is_deep = details is not None and is_nested_deeper(details)
    is_kept = not is_deep and len(msgspec.json.encode(details)) <= MAX_DETAILS_BYTES
    return ToolOutcome(
        status="error" if is_error else "ok",
        content=[*blocks, *(more or [])],
        is_error=is_error,
        output_object=await objects.put(data[:MAX_KEPT_BYTES]) if cut else None,
        output_bytes=len(data) if cut else None,
        details=details if details and is_kept else {},
    )
