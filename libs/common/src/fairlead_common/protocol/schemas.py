"""JSON Schemas of the structs on the wire: OpenAPI, AsyncAPI and client types are generated from them."""

from collections.abc import Iterable
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import inspect

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"


def reference(name: str) -> Schema:
    """The schema that stands for the component `name`."""
    return {"$ref": REFERENCE.format(name=name)}


def schemas_of(
    requests: Iterable[Any], answers: Iterable[Any]
) -> tuple[dict[Any, Schema], dict[str, Schema]]:
    """The schema of each type, and the components that these refer to, by name.

    Args:
        requests: types that senders may leave defaults out of.
        answers: types that this system encodes: a struct that writes its defaults always has all its fields.
            What is in both may be without its defaults.
    """
    asked, answered = list(dict.fromkeys(requests)), list(dict.fromkeys(answers))
    types = list(dict.fromkeys([*asked, *answered]))
    schemas, components = msgspec.json.schema_components(
        types, schema_hook=_schema_of, ref_template=REFERENCE
    )
    for struct in structs_in(answered) - structs_in(asked):
        if not struct.__struct_config__.omit_defaults:
            fields = msgspec.structs.fields(struct)
            unset = {each.encode_name for each in fields if each.default is msgspec.UNSET}
            schema = components[struct.__name__]
            schema["required"] = [name for name in schema["properties"] if name not in unset]
    for schema in components.values():
        schema.pop("title", None)  # its key is the title
        _tidy(schema)
    return dict(zip(types, schemas, strict=True)), components


def _tidy(schema: Schema) -> None:
    """Descriptions without the indentation of docstrings; what refers to a component only refers to it."""
    if "$ref" in schema:
        for name in schema.keys() & {"type", "additionalProperties"}:
            del schema[name]
    if schema.get("enum") in ([True], [False]):  # generators know enums of texts and numbers
        (only,) = schema.pop("enum")
        if isinstance(only, bool):
            schema |= {"type": "boolean", "const": only}
        else:
            schema["enum"] = [only]
    if isinstance(schema.get("description"), str):
        schema["description"] = cleandoc(schema["description"])
    for value in schema.values():
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, dict):
                _tidy(child)


def structs_in(types: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """The structs that values of these types are made of."""
    found: set[type[msgspec.Struct]] = set()
    waiting = [inspect.type_info(each) for each in types]
    while waiting:
        match waiting.pop():
            case inspect.Metadata(type=inner):
                waiting.append(inner)
            case inspect.StructType(cls=struct, fields=fields):
                if struct not in found:
                    found.add(struct)
                    waiting += [field.type for field in fields]
            case inspect.UnionType(types=members):
                waiting += members
            case inspect.CollectionType(item_type=item):
                waiting.append(item)
            case inspect.DictType(key_type=key, value_type=value):
                waiting += [key, value]
            case _:
                pass
    return found


def _schema_of(kind: Any) -> Schema:
    if kind in (object, msgspec.Raw):
        return {"description": "any JSON"}
    raise NotImplementedError
