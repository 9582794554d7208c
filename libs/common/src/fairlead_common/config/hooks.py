"""Hooks: code of other packages that is asked about, or told of, what agents do."""

from typing import Annotated, Literal

import msgspec

from fairlead_common.config.part import ConfigPart, ExtensionName


class HookConfig(ConfigPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One hook (an entry point of the group `fairlead.hooks`).

    Fields:
        settings: for its factory.
        timeout_s: of one question to it.
        on_failure: what counts when `before_tool_call` fails, is late or cannot be loaded: `closed`, the call
            is denied; `open`, as if the hook had not been asked.
    """

    settings: dict[str, object] = {}
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 5.0
    on_failure: Literal["closed", "open"] = "closed"


Hooked = dict[ExtensionName, HookConfig]
