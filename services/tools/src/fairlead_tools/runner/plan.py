"""From a frame to an order for a child: which tool, what exactly, for how long."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from fairlead_tools.runner import environment, files, protocol, search
from fairlead_tools.runner.arguments import Arguments
from fairlead_tools.runner.confine import Root, ToolError
from fairlead_tools.runner.edit import edit
from fairlead_tools.runner.guard import Order
from fairlead_tools.runner.outcome import Outcome, failed
from fairlead_tools.runner.protocol import Frame, FrameError

DEFAULT_TIMEOUT_S = 120.0
SEARCH_TIMEOUT_S = 30.0
MAX_COMMAND_BYTES = 100_000
MAX_COMMAND_TIMEOUT_S = 3_600

COMMAND_TOOL = "bash"


class FileTool(NamedTuple):
    """A tool that is a function here. With `once` it is journaled and never starts twice."""

    run: Callable[[Root, Arguments], Outcome]
    once: bool
    most_s: float = DEFAULT_TIMEOUT_S


FILE_TOOLS = {
    "read": FileTool(files.read, once=False),
    "ls": FileTool(files.ls, once=False),
    "glob": FileTool(search.glob, once=False, most_s=SEARCH_TIMEOUT_S),
    "grep": FileTool(search.grep, once=False, most_s=SEARCH_TIMEOUT_S),
    "write": FileTool(files.write, once=True),
    "edit": FileTool(edit, once=True),
}


class Plan(NamedTuple):
    """A call that was found in order. With `once` it may only ever start once."""

    call_id: str
    tool: str
    timeout_s: float
    once: bool
    order: Order

    @property
    def is_command(self) -> bool:
        """Whether it needs a guard rather than a worker."""
        return self.tool == COMMAND_TOOL


def make_plan(call_id: str, frame: Frame) -> Plan:
    """What a `call` frame asks for.

    Raises:
        ToolError: the model asked for something that cannot be.
        FrameError: the executor did.
    """
    tool = frame.get("tool")
    arguments = frame.get("arguments", {})
    if not isinstance(arguments, dict):
        raise FrameError("arguments: must be an object")
    timeout_s = protocol.number_of(frame, "timeout_s", DEFAULT_TIMEOUT_S, 0.001, protocol.MAX_TIMEOUT_S)
    if tool == COMMAND_TOOL:
        asked = Arguments(arguments).whole("timeout_s", 0, 0, MAX_COMMAND_TIMEOUT_S)
        order = _command(call_id, Arguments(arguments).text("command"), frame.get("env", {}))
        return Plan(call_id, tool, float(asked or timeout_s), True, order)
    if not isinstance(tool, str) or tool not in FILE_TOOLS:
        raise ToolError(f"There is no tool {tool!r} here.")
    known = FILE_TOOLS[tool]
    return Plan(
        call_id, tool, min(timeout_s, known.most_s), known.once, {"tool": tool, "arguments": arguments}
    )


def _command(call_id: str, text: str, env: object) -> Order:
    if not isinstance(env, dict):
        raise FrameError("env: must be an object")
    try:
        size = len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise ToolError("command: is not valid text") from None
    if size > MAX_COMMAND_BYTES:
        raise ToolError(
            f"command: at most {MAX_COMMAND_BYTES} bytes, got {size}; write a script file and run that"
        )
    if "\0" in text:
        raise ToolError("command: must not hold a NUL character")
    try:
        variables = environment.build(os.environ, env, call_id)
    except ValueError as error:
        raise ToolError(str(error)) from None
    return {"argv": [environment.SHELL, "-c", text], "env": variables}


def run_file_tool(order: Order, root: Root) -> Outcome:
    """The tool's outcome; refusals and failures of the system are outcomes too, without host paths."""
    try:
        return FILE_TOOLS[order["tool"]].run(root, Arguments(order["arguments"]))
    except ToolError as error:
        return failed(str(error))
    except OSError as error:
        return failed(f"The file system refused: {os.strerror(error.errno or 5)}")
    except (MemoryError, RecursionError) as error:
        return failed(f"The tool gave up: {type(error).__name__}")
