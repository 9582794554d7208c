"""From what the runner reports to what the session gets."""

import asyncio
import base64
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from fairlead_common.content import ToolOutcome, text_outcome
from fairlead_common.objects import Objects
from fairlead_tools.channel import Followed

FETCH_TIMEOUT_S = 30.0
MAX_KEPT_BYTES = 64 << 20  # of an output, in the object store


async def finished(report: dict[str, Any], followed: Followed, objects: Objects) -> ToolOutcome:
    """The outcome with its pictures and, where its text was cut, its full output in the object store."""
    fields = dict(report)
    cut = bool(fields.pop("output_cut", False))
    fields["content"] = [await _block(block, objects) for block in fields.get("content", [])]
    if cut:
        fields["output_object"] = await _store_output(followed, objects)
    try:
        return msgspec.convert(fields, ToolOutcome)
    except msgspec.ValidationError as error:
        return text_outcome("error", f"The runner reported nonsense: {error}", is_error=True)


async def _block(block: dict[str, Any], objects: Objects) -> dict[str, Any]:
    if block.get("type") != "image":
        return block
    name = await objects.put(base64.b64decode(block["data"]))
    return {"type": "image", "object": name, "media_type": block["media_type"]}


async def _store_output(followed: Followed, objects: Objects) -> str | None:
    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        path = Path(folder) / "output"
        with path.open("wb") as file:
            while file.tell() < MAX_KEPT_BYTES:
                data = await _fetch(followed, file.tell())
                if not data:
                    break
                await asyncio.to_thread(file.write, data)
        return await objects.put_file(path)


async def _fetch(followed: Followed, offset: int) -> bytes:
    await followed.send("fetch", offset=offset)
    while True:
        frame = await followed.next(FETCH_TIMEOUT_S)
        if frame.get("type") == "data":
            return base64.b64decode(frame["data"])
        if frame.get("type") == "error":
            return b""
