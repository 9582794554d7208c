"""Instructions for agents: AGENTS.md, else CLAUDE.md, of the folders of a workspace; links stay inside.

A file that is there is never left out without a word: what the model is not shown, it is told of.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fairlead_common.protocol.workspace_answers import FolderInstructions
from fairlead_tools.runner.confinement.workspace_root import Root, ToolFailedError

FILES: Final = ("AGENTS.md", "CLAUDE.md")
MAX_BYTES: Final = 32 * 1024
MAX_ALL_BYTES: Final = 128 * 1024  # of all folders that one question names
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO})
_MISSING: Final = os.strerror(errno.ENOENT)


def instructions_of(folder: Path, names: Sequence[str] = FILES) -> str:
    """The first of these files of a folder that is there; empty: none is.

    Raises:
        OSError: the folder cannot be looked at now.
    """
    root = Root(str(folder))
    try:
        return next((text for name in names if (text := _read(root, name)) is not None), "")
    finally:
        root.close()


def instructions_below(workspace: Path, folders: Sequence[str]) -> list[FolderInstructions]:
    """Those of the folders that have any; names that lead out of the workspace have none.

    Raises:
        OSError: the workspace cannot be looked at now.
    """
    root = Root(str(workspace))
    found = []
    left_bytes = MAX_ALL_BYTES
    try:
        for folder in folders:
            for name in FILES:
                path = f"{folder}/{name}"
                if (text := _read(root, path)) is not None:
                    left_bytes -= len(text.encode())
                    if left_bytes < 0:
                        text = _note(
                            name, f"is not shown: with others it has more than {MAX_ALL_BYTES:,} bytes"
                        )
                    found.append(FolderInstructions(folder=folder, file=path, text=text))
                    break
    finally:
        root.close()
    return found


def _read(root: Root, path: str) -> str | None:
    """The text; None: there is no such file in a folder of the workspace."""
    folder, _, name = path.rpartition("/")
    try:
        os.close(root.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY))
    except ToolFailedError as error:
        _check_passing(error)
        return None
    try:
        fd = root.open_file(path)
    except ToolFailedError as error:
        _check_passing(error)
        problem = str(error).removeprefix(f"{path}: ")
        return None if problem == _MISSING else _note(name, f"could not be read: {problem}")
    with open(fd, "rb") as file:
        data = file.read(MAX_BYTES)
        size_bytes = os.fstat(fd).st_size
    text = data.decode("utf-8", "replace")
    if size_bytes <= len(data):
        return text
    return f"{text}\n{_note(name, f'has {size_bytes:,} bytes, of which the first {len(data):,} are above')}"


def _check_passing(error: ToolFailedError) -> None:
    """See that the error says something about the file, not about this process.

    Raises:
        OSError: it says nothing: there may be another answer soon.
    """
    cause = error.__context__
    if isinstance(cause, OSError) and cause.errno in _PASSING:
        raise cause


def _note(name: str, problem: str) -> str:
    return f"[{name} {problem}. Read it yourself before you change anything that it may be about.]"
