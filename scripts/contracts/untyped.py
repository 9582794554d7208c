"""Places of a contract that say nothing about what is there: what a generated client can only call `Any`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scripts.contracts.free_places import ANYWHERE, FREE

_SAYS_NOTHING: Final = frozenset(
    ("contentEncoding", "default", "description", "examples", "propertyNames", "title")
)
_PARTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")


def untyped_places(document: Mapping[str, Any]) -> list[str]:
    """Every place of a document that any JSON fits: `Struct.field`, `Struct.field[]`, `GET /path status`.

    Places that `free_places` names are left out.
    """
    return sorted(
        place for place in free_places(document) - FREE.keys() if not place.endswith(tuple(ANYWHERE))
    )


def free_places(document: Mapping[str, Any]) -> set[str]:
    """Likewise, with those that are listed."""
    found = [
        place for name, schema in document["components"]["schemas"].items() for place in free_in(schema, name)
    ]
    for name, message in document["components"].get("messages", {}).items():
        found += free_in(message["payload"], f"message {name}")
    for path, operations in document.get("paths", {}).items():
        for method, operation in operations.items():
            where = f"{method.upper()} {path}"
            for parameter in operation["parameters"]:
                found += free_in(parameter["schema"], f"{where} {parameter['name']}")
            for kind, schema in bodies(operation):
                found += free_in(schema, f"{where} {kind}")
    return set(found)


def bodies(operation: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What an operation takes and answers: `body` or the status, and its schema; of streams, of events."""
    places = {"body": operation.get("requestBody", {}), **operation["responses"]}
    for name, place in places.items():
        for content in place.get("content", {}).values():
            yield name, content.get("x-event-data", content.get("schema", {}))


def free_in(schema: Any, place: str) -> Iterator[str]:
    """The places of a schema, named from `place` on, that any JSON fits."""
    if _is_free(schema):
        yield place
        return
    for name, field in schema.get("properties", {}).items():
        yield from free_in(field, f"{place}.{name}")
    if schema.get("type") == "array":
        yield from () if schema.get("maxItems") == 0 else free_in(schema.get("items", {}), f"{place}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from free_in(schema["additionalProperties"], f"{place}{{}}")
    for word in _PARTS:
        for part in schema.get(word, ()):
            yield from free_in(part, place)


def _is_free(schema: Any) -> bool:
    words = schema.keys() - _SAYS_NOTHING
    if not words:
        return True
    if schema.get("type") == "object" and words <= {"type", "additionalProperties"}:
        values = schema.get("additionalProperties", True)
        return values is True or (isinstance(values, dict) and _is_free(values))
    return False
