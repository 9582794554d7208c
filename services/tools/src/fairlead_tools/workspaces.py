"""Where a workspace lies on this host."""

import asyncio
import re
from pathlib import Path

from fairlead_common.errors import InvalidInputError

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md")
MAX_INSTRUCTION_BYTES = 32 * 1024

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}\Z")


class Workspaces:
    """The folders that agents work in.

    Args:
        default: used when a call names none. root: folder of those that are only named.
    """

    def __init__(self, default: Path, root: Path) -> None:
        self.default = default
        self.root = root

    def folder(self, workspace: str) -> Path:
        """The folder of a workspace, made if it is a named one or the default.

        Raises:
            InvalidInputError: it is no folder, or its name is none.
        """
        if workspace in ("", str(self.default)):
            path = self.default
            path.mkdir(parents=True, exist_ok=True)
        elif workspace.startswith("/"):
            path = Path(workspace)
        elif _NAME.match(workspace):
            path = self.root / workspace
            path.mkdir(parents=True, exist_ok=True)
        else:
            raise InvalidInputError(
                "workspace",
                f"must be an absolute path or a name of letters, digits, . _ -, got {workspace!r}",
            )
        if not path.is_dir():
            raise InvalidInputError("workspace", f"{workspace} is not a folder on this host")
        return path

    async def instructions(self, workspace: str) -> str:
        """The AGENTS.md (else CLAUDE.md) of a workspace, at most 32 KiB; empty when there is none."""
        return await asyncio.to_thread(self._read_instructions, workspace)

    def _read_instructions(self, workspace: str) -> str:
        try:
            folder = self.folder(workspace)
        except (InvalidInputError, OSError):
            return ""
        for name in INSTRUCTION_FILES:
            path = folder / name
            if path.is_symlink() or not path.is_file():
                continue
            with path.open("rb") as file:
                return file.read(MAX_INSTRUCTION_BYTES).decode("utf-8", "replace")
        return ""
