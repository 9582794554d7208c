"""Commands, processes and the project's own checks."""

from fairlead_common.protocol.messages import ToolSpec
from fairlead_tools.specs.schema import TEXT, form, reader, texts, whole

_GROUP = "runtime"
_SECONDS = whole(1, 3600)
_TIMEOUT = whole(1, 3600, "Time limit; 120 by default.")


def _check(name: str, description: str) -> ToolSpec:
    parameters = form(
        {
            "targets": texts("Files or names; all by default."),
            "path": {**TEXT, "description": "Folder of the project."},
            "timeout_s": _SECONDS,
        }
    )
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        shows="targets",
        group=_GROUP,
        flags=["private"],
    )


RUNTIME = [
    ToolSpec(
        name="bash",
        description=(
            "Run a command with bash in the workspace. Standard output and error come back together; long "
            "output is cut in the middle. There is no standard input. State such as `cd` does not last. "
            "For servers and watchers use `background`, then `process`."
        ),
        parameters=form(
            {
                "command": TEXT,
                "timeout_s": _TIMEOUT,
                "background": {"type": "boolean", "description": "Return at once; it keeps running."},
                "yield_s": whole(1, 600, "Return after this time; it keeps running."),
                "pty": {"type": "boolean", "description": "On a terminal."},
                "columns": whole(20, 500),
                "rows": whole(5, 200),
            },
            "command",
        ),
        shows="command",
        group=_GROUP,
        command_argument="command",
    ),
    reader(
        "process",
        _GROUP,
        "Look at background processes: `list`; `poll`: state, new output; `log`: output by lines, the last.",
        form(
            {
                "action": {"enum": ["list", "poll", "log"]},
                "process": TEXT,
                "wait_s": whole(0, 120, "`poll` waits that long for new output or the end."),
                "offset": {"type": "integer", "minimum": 1, "description": "First line."},
                "limit": whole(1, 2000),
            },
            "action",
        ),
        "action",
    ),
    ToolSpec(
        name="process_control",
        description=(
            "Act on a background process: `write` text to its input, `send_keys` to its terminal, `kill` it, "
            "`remove` it with its output."
        ),
        parameters=form(
            {
                "action": {"enum": ["write", "send_keys", "kill", "remove"]},
                "process": TEXT,
                "text": {"type": "string"},
                "eof": {"type": "boolean", "description": "Close the input after the text."},
                "keys": texts("`Enter`, `C-c`, `Up`, `F1` ...; others as they are."),
            },
            "action",
            "process",
        ),
        shows="action",
        group=_GROUP,
    ),
]

CHECKS = [
    _check("run_tests", "Run the project's tests; failures come back with file and line."),
    _check("run_lint", "Run the project's linter."),
    _check("check_types", "Run the project's type checker."),
]
