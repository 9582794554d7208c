"""W3C trace context: the header `traceparent` that ties a prompt to everything done for it."""

import os
import re
from typing import Final

from fairlead_common.protocol.subjects import H_TRACE

_TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-([0-9a-f]{2})\Z")


def child(parent: str | None) -> str:
    """A span of its own in the trace of `parent`; in a new trace if that is none or malformed."""
    match = _TRACEPARENT.match(parent or "")
    trace, flags = match.groups() if match else (os.urandom(16).hex(), "01")
    return f"00-{trace}-{os.urandom(8).hex()}-{flags}"


def trace_id(parent: str | None) -> str:
    """The id of the trace, as logs carry it; empty if there is none."""
    match = _TRACEPARENT.match(parent or "")
    return match.group(1) if match else ""


def trace_headers(parent: str | None) -> dict[str, str]:
    """The header of a message that is sent on behalf of `parent`; none without one."""
    return {H_TRACE: child(parent)} if parent and _TRACEPARENT.match(parent) else {}
