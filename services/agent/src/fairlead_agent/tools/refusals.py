"""Why a call cannot be made, in words for the model that end with the call to make instead. Pure."""

import difflib
import json
from typing import Any, Final

from fairlead_agent.tools.arguments import Json, expected
from fairlead_agent.tools.catalog import Tools
from fairlead_common.protocol.content import ToolCallBlock
from fairlead_common.protocol.entries import ToolListEntry
from fairlead_common.protocol.messages import ToolSpec

MAX_RAW_CHARS: Final = 200
_MAX_VALUE_CHARS: Final = 300  # of an argument that is repeated; a longer one is named

_EDIT: Final[Json] = {"path": "<path>", "edits": [{"old_text": "<old>", "new_text": "<new>"}]}
# What tools of other agents do, and how it is done here; each with the tool that does it.
_INSTEAD: Final[dict[str, tuple[str, Json]]] = {
    "mkdir": ("bash", {"command": "mkdir -p <folder>"}),
    "createdirectory": ("bash", {"command": "mkdir -p <folder>"}),
    "movefile": ("bash", {"command": "mv <from> <to>"}),
    "renamefile": ("bash", {"command": "mv <from> <to>"}),
    "copyfile": ("bash", {"command": "cp <from> <to>"}),
    "python": ("bash", {"command": "python3 - <<'EOF'\n<code>\nEOF"}),
    "ipython": ("bash", {"command": "python3 - <<'EOF'\n<code>\nEOF"}),
    "notebookedit": ("edit", _EDIT),
    "insert": ("edit", _EDIT),
    "strreplaceeditor": ("edit", _EDIT),
    "strreplacebasededittool": ("edit", _EDIT),
}
_NONE_NEEDED: Final = frozenset({"todowrite", "todoread", "updateplan", "think", "task", "exitplanmode"})


def refusal(
    call: ToolCallBlock, spec: ToolSpec | None, tools: Tools, shown: ToolListEntry | None = None
) -> str | None:
    """Why the call cannot be made as it is; None: it can.

    Args:
        spec: of the tool that it names, if that is on offer.
        shown: the tools that the model was offered.
    """
    if spec is None:
        return _no_tool(call, tools, shown)
    names = expected(spec.parameters)
    if call.arguments is None:
        raw = (call.raw_arguments or "")[:MAX_RAW_CHARS]
        example = next_call(spec.name, spec.parameters, {})
        return f"The arguments are not a JSON object: {raw!r}. Expected: {names}. {example}"
    if problem := tools.problem(call.name, call.arguments):
        example = next_call(spec.name, spec.parameters, tools.fitting(call.name, call.arguments))
        return f"Invalid arguments for {call.name}: {problem}. Expected: {names}. {example}"
    if call.host is None:
        return "No tool executor was available when the call was made."
    return None


def _no_tool(call: ToolCallBlock, tools: Tools, shown: ToolListEntry | None) -> str:
    known = ", ".join(tools.specs) or "none right now"
    if shown is not None and call.name in shown.names:
        return f"Tool {call.name!r} is not available: no executor offers it right now. Available: {known}."
    words = f"There is no tool {call.name!r}. Available: {known}."
    plain = "".join(sign for sign in call.name.lower() if sign.isalnum())
    if plain in _NONE_NEEDED:
        return f"{words} Go on without it."
    tool, arguments = _INSTEAD.get(plain, ("", {}))
    if tool in tools.specs:
        return f"{words} {written(tool, arguments)}"
    near = difflib.get_close_matches(call.name.lower(), tools.specs, n=1, cutoff=0.65)
    if near:
        spec = tools.specs[near[0]]
        fits = tools.fitting(spec.name, call.arguments or {})
        return f"{words} {next_call(spec.name, spec.parameters, fits)}"
    return words


def next_call(name: str, schema: Json, arguments: Json) -> str:
    """The call to make: with the arguments that fit, and placeholders for those that are missing."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return written(name, arguments)
    needed = schema.get("required")
    given = {
        key: f"<the same {key}>" if len(json.dumps(value)) > _MAX_VALUE_CHARS else value
        for key, value in arguments.items()
    }
    missing = {
        key: _placeholder(key, properties.get(key))
        for key in (needed if isinstance(needed, list) else ())
        if key not in given
    }
    made = {**given, **missing}
    return written(name, {key: made[key] for key in properties if key in made})


def _placeholder(name: str, schema: Any) -> object:
    if not isinstance(schema, dict):
        return f"<{name}>"
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type"):
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "array":
            return [_placeholder(name, schema.get("items"))]
        case "object":
            properties = schema.get("properties") or {}
            return {key: _placeholder(key, properties.get(key)) for key in schema.get("required") or []}
        case _:
            return f"<{name}>"


def written(name: str, arguments: Json) -> str:
    """A call as the end of an error shows it."""
    return f"Next: {name} {json.dumps(arguments, ensure_ascii=False)}"
