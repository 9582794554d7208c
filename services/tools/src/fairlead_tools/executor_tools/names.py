"""Names of tools that come from elsewhere: what model providers accept, and no two alike."""

import hashlib
import re

MAX_NAME_CHARS = 64

_REFUSED = re.compile(r"[^A-Za-z0-9_-]")


def joined(*parts: str) -> str:
    """The parts joined by `__`. A name that had to be changed or cut ends in a hash of what it was."""
    whole = "__".join(parts)
    name = _REFUSED.sub("_", whole)
    if name == whole and len(name) <= MAX_NAME_CHARS:
        return name
    mark = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - 9]}_{mark}"
