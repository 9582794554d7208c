"""Subjects: which filters they match, and how the server maps one to another."""

import re
from functools import lru_cache

_WILDCARD = re.compile(r"\{\{\s*wildcard\((\d+)\)\s*\}\}", re.IGNORECASE)


@lru_cache(maxsize=4096)
def _literal(pattern: str) -> str:
    """What all subjects that match the pattern begin with."""
    return re.split(r"(?<![^.])[*>](?![^.])", pattern, maxsplit=1)[0]


def matches(pattern: str, subject: str) -> bool:
    """Whether a literal subject matches a pattern with `*` and `>`."""
    if not subject.startswith(_literal(pattern)):
        return False
    return pattern == subject or _matches_words(pattern.split("."), subject.split("."))


def _matches_words(wanted: list[str], actual: list[str]) -> bool:
    for index, token in enumerate(wanted):
        if token == ">":
            return len(actual) > index
        if index >= len(actual) or (token not in ("*", actual[index])):
            return False
    return len(wanted) == len(actual)


def mapped(source: str, destination: str, subject: str) -> str | None:
    """The subject that `subject` becomes, or None if it does not match `source`."""
    if not matches(source, subject):
        return None
    wanted, actual = source.split("."), subject.split(".")
    captured = [actual[index] for index, token in enumerate(wanted) if token == "*"]
    rest = actual[len(wanted) - 1 :] if wanted[-1] == ">" else []
    filled = _WILDCARD.sub(lambda found: captured[int(found[1]) - 1], destination)
    return ".".join([*filled.split(".")[:-1], *rest]) if filled.endswith(">") else filled
