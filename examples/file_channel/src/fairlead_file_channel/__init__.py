"""A delivery channel: answers of jobs become files of a folder."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path

from fairlead_scheduler.delivery.channels import UndeliverableError
from fairlead_scheduler.delivery.message import DeliveryMessage


class FileChannel:
    """Writes each answer to `<folder>/<to>-<delivery id>.txt`.

    Args:
        settings: `cron.channels.file` of the configuration; `folder` is an absolute path.

    Raises:
        ValueError: there is no folder.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self._folder = Path(str(settings.get("folder", "")))
        if not self._folder.is_absolute():
            raise ValueError(
                f"cron.channels.file.folder: must be an absolute path, got {str(self._folder)!r}"
            )

    async def send(self, message: DeliveryMessage) -> None:
        """Write the file. An attempt that is repeated writes the same file again."""
        to = message.to or "answer"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", to):
            raise UndeliverableError(f"to: must be letters, digits, - and _, at most 64, got {to[:80]!r}")
        await asyncio.to_thread(self._write, f"{to}-{message.delivery_id}.txt", message.text)

    def _write(self, name: str, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = self._folder / f".{name}"
        draft.write_text(text, "utf-8")
        draft.replace(self._folder / name)

    async def close(self) -> None:
        """Nothing is open."""
