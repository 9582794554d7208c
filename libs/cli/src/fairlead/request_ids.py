"""The id of a JSON-RPC message that cannot be read as a whole, so that its client does not wait for ever."""

import json
import re
from typing import Final

HEAD_BYTES: Final = 1024  # the id may be in so many at the beginning

_ID_FIRST: Final = re.compile(
    rb'\s*\{\s*(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,100}"\s*,\s*)*'
    rb'"id"\s*:\s*(-?(?:0|[1-9]\d{0,30})|"[\x20\x21\x23-\x5b\x5d-\x7e]{0,200}")\s*,'
)


def id_in(head: bytes) -> int | str | None:
    """The id in the beginning of a message, where clients write it; None: it is not there."""
    found = _ID_FIRST.match(head[:HEAD_BYTES])
    return None if found is None else json.loads(found[1])
