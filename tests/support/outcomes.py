"""What outcomes of tool calls show."""

from collections.abc import Mapping
from typing import Any

from fairlead_common.protocol.content import TextBlock, ToolOutcome


def text_of(outcome: ToolOutcome | Mapping[str, Any]) -> str:
    """The text of all blocks together, of an outcome or of the JSON of one."""
    if isinstance(outcome, ToolOutcome):
        return "".join(block.text for block in outcome.content if isinstance(block, TextBlock))
    return "".join(block.get("text", "") for block in outcome["content"])
