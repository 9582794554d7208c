"""TypeScript types of the components of an OpenAPI document."""

import json
from collections.abc import Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_PLAIN: Final = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def typescript(components: Mapping[str, Schema]) -> str:
    """One exported type for each component, in order of name."""
    return "\n".join(_declaration(name, components[name]) for name in sorted(components))


def _declaration(name: str, schema: Schema) -> str:
    comment = _comment(str(schema.get("description", "")))
    if schema.get("type") == "object" and schema.get("properties"):
        return f"{comment}export interface {name} {_object(schema, '')}\n"
    return f"{comment}export type {name} = {_type(schema, '')};\n"


def _comment(text: str) -> str:
    lines = text.replace("*/", "* /").splitlines()
    if not lines:
        return ""
    if len(lines) == 1:
        return f"/** {lines[0]} */\n"
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def _object(schema: Schema, indent: str) -> str:
    required = set(schema.get("required", ()))
    inner = indent + "  "
    fields = [
        f"{inner}{_key(name)}{'' if name in required else '?'}: {_type(field, inner)};\n"
        for name, field in schema["properties"].items()
    ]
    return "{\n" + "".join(fields) + indent + "}" if fields else "Record<string, never>"


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _type(schema: Schema, indent: str) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for word, joint in (("allOf", " & "), ("anyOf", " | "), ("oneOf", " | ")):
        if word in schema:
            return joint.join(dict.fromkeys(_member(each, indent) for each in schema[word]))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    match schema.get("type"):
        case "array":
            return f"{_member(schema.get('items', {}), indent)}[]"
        case "object":
            if "properties" in schema:
                return _object(schema, indent)
            return f"Record<string, {_type(schema.get('additionalProperties', {}), indent)}>"
        case str(plain):
            return _PLAIN[plain]
        case _:
            return "unknown"


def _member(schema: Schema, indent: str) -> str:
    """A type that can stand beside others or before `[]`."""
    text = _type(schema, indent)
    is_several = " | " in text or " & " in text
    return f"({text})" if is_several and not text.startswith("{") else text
