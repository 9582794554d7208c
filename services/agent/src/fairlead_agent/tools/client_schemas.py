"""Values checked against JSON Schemas that clients sent.

Checking must neither reach the network nor keep a worker busy: a schema stays inside its document (see
`check_schema_document`), regular expressions in it are not tried, and references are followed so often.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from typing import Any, Final, cast

import jsonschema
import msgspec
import referencing
import referencing.exceptions
import referencing.jsonschema

from fairlead_agent.lru import LruCache
from fairlead_common.errors import BadMessageError
from fairlead_common.protocol.client_tools import ResponseFormat
from fairlead_common.protocol.messages import UserInput
from fairlead_common.undecodable import UNDECODABLE

MAX_REFERENCES: Final = 20_000  # followed in one check; each may lead to others
MAX_PROBLEMS: Final = 5
MAX_PROBLEM_CHARS: Final = 300
MAX_KNOWN: Final = 256
QUICK_BYTES: Final = 4096  # a schema of this size is looked through in milliseconds
# A pattern could take for ever on the right text. What they hold stays unchecked.
_PATTERNS: Final = frozenset({"pattern", "patternProperties", "propertyNames"})
_MAPS: Final = frozenset({"properties", "$defs", "definitions", "dependentSchemas"})
_DATA: Final = frozenset({"const", "default", "enum", "examples", "required"})
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class _TooManyReferencesError(Exception):
    pass


class SchemaCheck:
    """A schema that values are checked against.

    Raises:
        BadMessageError: it is no JSON Schema, or refers to what it does not have.
    """

    def __init__(self, schema: dict[str, object]) -> None:
        safe = _without_patterns(schema)
        kind: Any = jsonschema.validators.validator_for(safe, default=jsonschema.Draft202012Validator)
        try:
            kind.check_schema(safe)
        except jsonschema.exceptions.SchemaError as error:
            where = ".".join(map(str, error.absolute_path)) or "the schema"
            raise BadMessageError(f"{where}: {error.message[:MAX_PROBLEM_CHARS]}") from error
        counted = {
            word: self._counting(kind.VALIDATORS[word]) for word in _REFERENCES if word in kind.VALIDATORS
        }
        _check_references(safe)
        extend: Any = jsonschema.validators.extend
        made = extend(kind, counted)
        self._validator = made(safe, registry=referencing.Registry())
        self._followed = 0

    def problems(self, value: object) -> list[str]:
        """What is wrong with the value, each with its place, for a model; empty: nothing."""
        self._followed = 0
        found: list[str] = []
        try:
            for error in self._validator.iter_errors(cast(Any, value)):
                where = ".".join(str(part) for part in error.absolute_path)
                text = error.message[:MAX_PROBLEM_CHARS]
                found.append(f"{where}: {text}" if where else text)
                if len(found) == MAX_PROBLEMS:
                    break
        except _TooManyReferencesError:
            return [f"it cannot be checked: more than {MAX_REFERENCES} references are followed"]
        except RecursionError:
            return ["it cannot be checked: the schema refers to itself without end, or the reply is too deep"]
        except referencing.exceptions.Unresolvable:
            return ["it cannot be checked: the schema refers to what it does not have"]
        return found

    def _counting(self, follow: Any) -> Any:
        def counted(validator: Any, target: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self._followed += 1
            if self._followed > MAX_REFERENCES:
                raise _TooManyReferencesError
            yield from follow(validator, target, instance, schema) or ()

        return counted


_known: LruCache[bytes, SchemaCheck] = LruCache(MAX_KNOWN)


def check_of(schema: dict[str, object]) -> SchemaCheck:
    """The check of a schema; made once for all sessions that have the same.

    Raises:
        BadMessageError: it is no JSON Schema.
    """
    key, _ = _key(schema)
    return _known.get(key) or _known.put(key, SchemaCheck(schema))


def _key(schema: dict[str, object]) -> tuple[bytes, int]:
    data = msgspec.json.encode(schema)
    return hashlib.sha256(data).digest(), len(data)


async def check_schemas(mail: UserInput) -> None:
    """Whether the schemas that came with a prompt are such.

    Raises:
        BadMessageError: one is not; the text names its field.
    """
    fields = [(f"client_tools[{n}].parameters", tool.parameters) for n, tool in enumerate(mail.client_tools)]
    if (wanted := mail.response_format) is not None and wanted.schema is not None:
        fields.append(("response_format.schema", wanted.schema))
    for field, schema in fields:
        key, size = _key(schema)
        if _known.get(key) is not None:
            continue
        try:
            quick = size <= QUICK_BYTES
            made = SchemaCheck(schema) if quick else await asyncio.to_thread(SchemaCheck, schema)
            _known.put(key, made)
        except BadMessageError as error:
            raise BadMessageError(f"{field}: {error}") from error


def form_problems(wanted: ResponseFormat, text: str) -> list[str]:
    """What keeps a reply from having the form that was asked for; empty: nothing."""
    try:
        value = msgspec.json.decode(text.strip())
    except (UnicodeEncodeError, *UNDECODABLE) as error:
        return [f"it is not JSON: {error}. Nothing may stand before or after the JSON, no code fence either"]
    if wanted.schema is None:
        return [] if isinstance(value, dict) else ["it must be a JSON object"]
    return check_of(wanted.schema).problems(value)


def _check_references(schema: dict[str, Any]) -> None:
    """Refuse references to what the schema does not have, before a reply is checked against it.

    Raises:
        BadMessageError: there is one.
    """
    specification = referencing.jsonschema.DRAFT202012
    root = referencing.Resource.from_contents(schema, default_specification=specification)
    parts: list[tuple[Any, Any]] = [(schema, referencing.Registry().resolver_with_root(root))]
    while parts:
        part, resolver = parts.pop()
        if isinstance(part, list):
            parts += [(each, resolver) for each in part]
        if not isinstance(part, dict):
            continue
        if part is not schema and isinstance(part.get("$id"), str):  # what is below refers to itself
            below = referencing.Resource.from_contents(part, default_specification=specification)
            resolver = resolver.in_subresource(below)
        for word in _REFERENCES:
            if isinstance(target := part.get(word), str):
                _look_up(resolver, word, target)
        for key, value in part.items():
            if key in _MAPS and isinstance(value, dict):
                parts += [(each, resolver) for each in value.values()]
            elif key not in _DATA:
                parts.append((value, resolver))


def _look_up(resolver: Any, word: str, target: str) -> None:
    try:
        resolver.lookup(target)
    except (referencing.exceptions.Unresolvable, ValueError, TypeError) as error:
        raise BadMessageError(f"{word}: there is no {target[:80]!r} in the schema") from error


def _without_patterns(schema: dict[str, Any]) -> dict[str, Any]:
    safe: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _PATTERNS:
            continue
        if key in _DATA:
            safe[key] = value
        elif key in _MAPS and isinstance(value, dict):
            safe[key] = {name: _part(each) for name, each in value.items()}
        else:
            safe[key] = _part(value)
    return safe


def _part(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_patterns(value)
    if isinstance(value, list):
        return [_part(each) for each in value]
    return value
