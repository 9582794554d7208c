"""Files that are sent with a prompt."""

import base64
import mimetypes
from collections.abc import Sequence
from pathlib import Path

from fairlead_common.installation.errors import USAGE, CommandError
from fairlead_common.protocol.messages import MAX_ATTACHMENTS, MAX_FILE_BYTES


def attachments(files: Sequence[Path]) -> list[dict[str, str]]:
    """The files as the API takes them.

    Raises:
        CommandError: there are too many, or one is too large or cannot be read.
    """
    if len(files) > MAX_ATTACHMENTS:
        raise CommandError(f"--file: at most {MAX_ATTACHMENTS} files, got {len(files)}", USAGE)
    return [_attachment(file) for file in files]


def _attachment(file: Path) -> dict[str, str]:
    try:
        size = file.stat().st_size
        if size > MAX_FILE_BYTES:
            raise CommandError(f"--file {file}: at most {MAX_FILE_BYTES} bytes, it has {size}", USAGE)
        data = file.read_bytes()
    except OSError as error:
        raise CommandError(f"--file {file}: {error.strerror}", USAGE) from error
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return {"name": file.name, "media_type": kind, "data": base64.b64encode(data).decode()}
