"""JSON objects with two fields of one name: one reader may see another value than the next."""

import json

from jiter import from_json


class _FoundError(Exception):
    """Its argument is the name."""


def repeated_name(body: bytes) -> str | None:
    """A name that one object of `body` has more than once, escapes resolved; None: there is none.

    Args:
        body: JSON that was decoded before.

    Raises:
        RecursionError: it is nested too deeply.
    """
    try:
        from_json(body, cache_mode="keys", catch_duplicate_keys=True)
    except ValueError:  # it has limits of depth and of digits, too, and writes names with escapes
        return _searched(body)
    return None


def _searched(body: bytes) -> str | None:
    """The same, slower and for all that is JSON."""
    try:
        json.loads(body, object_pairs_hook=_names, parse_int=len, parse_float=len)
    except _FoundError as found:
        return str(found)
    except ValueError:  # what is no JSON has no fields
        return None
    return None


def _names(fields: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in fields:
        if name in seen:
            raise _FoundError(name)
        seen.add(name)
