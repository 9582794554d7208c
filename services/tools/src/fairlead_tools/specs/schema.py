"""JSON Schema of arguments, in few words."""

from fairlead_common.protocol.messages import ToolSpec

Schema = dict[str, object]

# Whatever the runner checks anyway is left out: models rarely break it, and every request would carry it.
TEXT: Schema = {"type": "string"}
PATH: Schema = {**TEXT, "description": "Relative to the workspace."}
FLAG: Schema = {"type": "boolean"}


def form(properties: Schema, *required: str) -> Schema:
    """An object with these properties and no others."""
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": list(required)} if required else made


def whole(low: int, high: int, description: str = "") -> Schema:
    """A whole number."""
    made: Schema = {"type": "integer", "minimum": low, "maximum": high}
    return {**made, "description": description} if description else made


def texts(description: str = "") -> Schema:
    """A list of strings."""
    made: Schema = {"type": "array", "items": TEXT}
    return {**made, "description": description} if description else made


def reader(name: str, group: str, description: str, parameters: Schema, shows: str) -> ToolSpec:
    """A tool that only looks, at what may be private."""
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        idempotent=True,
        parallel=True,
        read_only=True,
        shows=shows,
        group=group,
        flags=["private"],
    )
