"""Tools behind NATS subjects that cannot say so themselves."""

from typing import Annotated, Any

import msgspec

from fairlead_common.config.part import ConfigPart
from fairlead_common.protocol.content import TrustFlag


class NatsTool(ConfigPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A subject that answers requests, such as a shell behind `nats reply`.

    Micro services declare their tools themselves, in the metadata of their endpoints; see `docs/tools.md`.

    Fields:
        subject: requests go there, with the arguments as a JSON object. Not under `fairlead.` or `$`.
        schema: JSON Schema of the arguments; without one, any object.
        idempotent, read_only, parallel, flags: as for every tool; a tool that says nothing may act
            outside and may bring in what strangers wrote.
        timeout_s: of one call; 0: as for all tools.
    """

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    description: Annotated[str, msgspec.Meta(min_length=1)]
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    idempotent: bool = False
    read_only: bool = False
    parallel: bool = False
    flags: list[TrustFlag] = msgspec.field(default_factory=lambda: ["untrusted", "external"])
    timeout_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
