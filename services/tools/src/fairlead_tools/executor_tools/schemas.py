"""JSON Schemas and descriptions that strangers wrote, made safe to check arguments with and to show."""

import unicodedata
from typing import Any

import jsonschema
import msgspec

MAX_SCHEMA_BYTES = 32_768
MAX_DEPTH = 32
MAX_DESCRIPTION_CHARS = 4_000

_MAPS = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"const", "default", "enum", "examples", "required"})


class BrokenSchemaError(ValueError):
    """A tool with this schema is not offered; the text says why."""


def checked_schema(schema: object, *, trusted: bool) -> dict[str, object]:
    """The schema, of an object, without what could make checking it slow or reach the network.

    Args:
        trusted: regular expressions may stay. One of a stranger could take for ever on the right text.

    Raises:
        BrokenSchemaError: it is no schema of an object, too large, or refers to another document.
    """
    if not isinstance(schema, dict):
        raise BrokenSchemaError(f"schema: must be an object, got {type(schema).__name__}")
    size = len(msgspec.json.encode(schema))
    if size > MAX_SCHEMA_BYTES:
        raise BrokenSchemaError(f"schema: at most {MAX_SCHEMA_BYTES} bytes, got {size}")
    if schema.get("type", "object") != "object":
        raise BrokenSchemaError(f"schema: type must be 'object', got {str(schema.get('type'))[:80]!r}")
    safe = _copied({**schema, "type": "object"}, trusted, depth=0)
    safe.pop("$schema", None)  # checked as draft 2020-12, whatever it says
    try:
        jsonschema.Draft202012Validator.check_schema(safe)
    except jsonschema.exceptions.SchemaError as error:
        raise BrokenSchemaError(f"schema: {error.message[:200]}") from error
    return safe


def checked_command(name: str, schema: dict[str, object]) -> str:
    """The name of the argument that a shell runs; empty: there is none.

    Raises:
        BrokenSchemaError: the schema has no such argument, so the commands of its calls could not be found.
    """
    properties = schema.get("properties")
    known = list(properties) if isinstance(properties, dict) else []
    if name and name not in known:
        shown = ", ".join(known)[:200] or "none"
        raise BrokenSchemaError(
            f"command: must be one of the arguments that the schema names ({shown}), got {name[:80]!r}"
        )
    return name


def described(text: str) -> str:
    """The words without what people could not see, at most 4,000 characters."""
    seen = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs"))
    seen = seen.strip()
    return seen if len(seen) <= MAX_DESCRIPTION_CHARS else f"{seen[: MAX_DESCRIPTION_CHARS - 3]}..."


def _copied(schema: dict[str, Any], trusted: bool, *, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise BrokenSchemaError(f"schema: at most {MAX_DEPTH} levels deep")
    safe: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("$ref", "$dynamicRef") and not str(value).startswith("#"):
            raise BrokenSchemaError(f"schema: {key} must stay inside the document, got {str(value)[:80]!r}")
        if key in ("$id", "id", "$anchor") or (not trusted and key in ("pattern", "patternProperties")):
            continue
        if key in _DATA:
            safe[key] = value
        elif key in _MAPS and isinstance(value, dict):
            safe[key] = {name: _part(each, trusted, depth + 1) for name, each in value.items()}
        else:
            safe[key] = _part(value, trusted, depth + 1)
    return safe


def _part(value: Any, trusted: bool, depth: int) -> Any:
    if isinstance(value, dict):
        return _copied(value, trusted, depth=depth)
    if isinstance(value, list):
        return [_part(each, trusted, depth) for each in value]
    return value
