"""The built-in tools as models see them. What they do is in `runner/`."""

from fairlead_common.messages import ToolSpec

_PATH = {"type": "string", "minLength": 1, "description": "Path relative to the workspace."}


def _object(properties: dict[str, object], *required: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _reader(name: str, description: str, parameters: dict[str, object], shows: str) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        idempotent=True,
        parallel=True,
        read_only=True,
        shows=shows,
    )


BUILT_IN = [
    ToolSpec(
        name="bash",
        description=(
            "Run a command with bash in the workspace. Standard output and error come back together; long "
            "output is cut in the middle. There is no standard input. State such as `cd` does not last."
        ),
        parameters=_object(
            {
                "command": {"type": "string", "minLength": 1},
                "timeout_s": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 3600,
                    "description": "Stop it after so many seconds; 120 by default.",
                },
            },
            "command",
        ),
        shows="command",
    ),
    _reader(
        "read",
        "Read a text file with line numbers, or look at a picture. At most 2,000 lines or 50 KB at a time.",
        _object(
            {
                "path": _PATH,
                "offset": {"type": "integer", "minimum": 1, "description": "First line, from 1."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 2000},
                "line_numbers": {"type": "boolean"},
            },
            "path",
        ),
        "path",
    ),
    ToolSpec(
        name="write",
        description="Write a whole file, made with its folders if it is missing.",
        parameters=_object({"path": _PATH, "content": {"type": "string"}}, "path", "content"),
        shows="path",
    ),
    ToolSpec(
        name="edit",
        description=(
            "Replace exact text in a file. Each `old_text` must occur exactly once, or set `replace_all`."
        ),
        parameters=_object(
            {
                "path": _PATH,
                "edits": {
                    "type": "array",
                    "minItems": 1,
                    "items": _object(
                        {
                            "old_text": {"type": "string", "minLength": 1},
                            "new_text": {"type": "string"},
                            "replace_all": {"type": "boolean"},
                        },
                        "old_text",
                        "new_text",
                    ),
                },
            },
            "path",
            "edits",
        ),
        shows="path",
    ),
    _reader(
        "glob",
        "Find files by a pattern such as `**/*.py`, newest first.",
        _object({"pattern": {"type": "string", "minLength": 1}, "path": _PATH}, "pattern"),
        "pattern",
    ),
    _reader(
        "grep",
        "Search file contents by regular expression; at most 100 matching lines.",
        _object(
            {
                "pattern": {"type": "string", "minLength": 1},
                "path": _PATH,
                "glob": {"type": "string", "description": "Only files whose name matches, such as `*.py`."},
                "ignore_case": {"type": "boolean"},
                "literal": {"type": "boolean", "description": "The pattern is plain text."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            },
            "pattern",
        ),
        "pattern",
    ),
    _reader("ls", "List a folder.", _object({"path": _PATH}), "path"),
]

BY_NAME = {spec.name: spec for spec in BUILT_IN}
