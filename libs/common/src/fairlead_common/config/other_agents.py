"""Other agents on the bus, which Fairlead's agents may prompt."""

from typing import Annotated

import msgspec

from fairlead_common.config.part import ConfigPart

# `<agent>.<owner>.<name>`, or a beginning of that and a star.
AgentPattern = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]*\*?$", min_length=1, max_length=200)]


class OtherAgentsConfig(ConfigPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tools `agents_list` and `agents_prompt`.

    Fields:
        enabled: without, there are none.
        allow: agents that may be prompted, as `<agent>.<owner>.<name>`, or a beginning with `*`.
        timeout_s: of one prompt. max_open: prompts that one executor waits for at the same time.
    """

    enabled: bool = False
    allow: list[AgentPattern] = msgspec.field(default_factory=lambda: ["*"])
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 600.0
    max_open: Annotated[int, msgspec.Meta(ge=1, le=100)] = 8
