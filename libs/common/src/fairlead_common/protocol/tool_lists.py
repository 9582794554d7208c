"""What models are shown of the tools that they may call."""

import msgspec


class ToolSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as models see it. What decides whether a call may run is in `ToolSpec`.

    Fields:
        parameters: JSON Schema of the arguments, without words that only Fairlead reads.
    """

    name: str
    description: str
    parameters: dict[str, object]
