"""Which values a setting may have, for the text that refuses another one."""

import re
from typing import Final

import msgspec
from msgspec import inspect

# As msgspec words it: `Invalid enum value 'x' - at `$.agents[...].mode``
_WRONG_CHOICE: Final = re.compile(r"^Invalid enum value .* - at `\$(?P<path>.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.(?P<field>[^.\[]+)|\[[^\]]*\]")


def explained(error: msgspec.ValidationError, document: type) -> str:
    """The text of an error in a `document`; with the values that are valid, where there are only a few."""
    text = str(error)
    wrong = _WRONG_CHOICE.match(text)
    if wrong is None:
        return text
    found: list[inspect.Type] = [inspect.type_info(document)]
    for step in _STEP.finditer(wrong["path"]):
        found = [child for each in found for child in _below(each, step["field"])]
    values = [value for each in found for value in _values(each)]
    return f"{text}: must be one of {', '.join(map(str, values))}" if values else text


def _below(kind: inspect.Type, field: str | None) -> list[inspect.Type]:
    """The types that a field, or any item if it is None, may have."""
    match kind:
        case inspect.UnionType():
            return [child for each in kind.types for child in _below(each, field)]
        case inspect.StructType() if field is not None:
            return [each.type for each in kind.fields if each.encode_name == field]
        case inspect.DictType():
            return [kind.value_type]
        case inspect.ListType() | inspect.VarTupleType():
            return [kind.item_type]
        case _:
            return []


def _values(kind: inspect.Type) -> list[object]:
    match kind:
        case inspect.UnionType():
            return [value for each in kind.types for value in _values(each)]
        case inspect.LiteralType():
            return list(kind.values)
        case _:
            return []
