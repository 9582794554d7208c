"""Subjects: which filters they match, and how the server maps one to another."""

import re
from functools import lru_cache

_WILDCARD = re.compile(r"\{\{\s*wildcard\((\d+)\)\s*\}\}", re.IGNORECASE)


@lru_cache(maxsize=4096)
def _literal(pattern: str) -> str:
    """What all subjects that match the pattern begin with."""
    return re.split(r"(?<![^.])[*>](?![^.])", pattern, maxsplit=1)[0]


@lru_cache(maxsize=4096)
def beginnings(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """What subjects that match one of these patterns begin with, for `str.startswith`."""
    return tuple(_literal(pattern) for pattern in patterns)


def matches(pattern: str, subject: str) -> bool:
    """Whether a literal subject matches a pattern with `*` and `>`."""
    if not subject.startswith(_literal(pattern)):
        return False
    return pattern == subject or _matches_words(pattern.split("."), subject.split("."))


def beginning_of(subject: str) -> str:
    """Its first two words, which tell most subjects apart."""
    return ".".join(subject.split(".", 2)[:2])


def may_match(pattern: str, beginning: str) -> bool:
    """Whether a pattern matches some subject with this beginning."""
    wanted, actual = pattern.split("."), beginning.split(".")
    for index, token in enumerate(wanted[: len(actual)]):
        if token == ">":
            return True
        if token not in ("*", actual[index]):
            return False
    return len(wanted) >= len(actual)


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
