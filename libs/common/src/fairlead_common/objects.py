"""The object store: attachments, long tool outputs, payloads too large for one message.

Objects are named by the SHA-256 of their bytes, so that storing one twice is one object.
"""

import asyncio
import hashlib
import io
from pathlib import Path
from typing import BinaryIO

import nats.errors
import nats.js.errors
from nats.js.object_store import ObjectStore

from fairlead_common import subjects
from fairlead_common.bus import INLINE_LIMIT_BYTES, Bus, Headers
from fairlead_common.errors import BusUnavailableError, NotFoundError
from fairlead_common.failpoints import failpoint

TIMEOUT_S = 60.0


class Objects:
    """The bucket `objects`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._store: ObjectStore | None = None

    async def put(self, data: bytes) -> str:
        """Store `data`; its name.

        Raises:
            BusUnavailableError: not stored within a minute.
        """
        return await self._put(hashlib.sha256(data).hexdigest(), io.BytesIO(data))

    async def put_file(self, path: Path) -> str:
        """Store the bytes of a file without holding them in memory; the object's name."""
        with path.open("rb") as file:
            name = (await asyncio.to_thread(hashlib.file_digest, file, "sha256")).hexdigest()
            file.seek(0)
            return await self._put(name, file)

    async def get(self, name: str, *, limit_bytes: int = 256 << 20) -> bytes:
        """The bytes of an object.

        Raises:
            NotFoundError: there is none of this name, or it is larger than `limit_bytes`.
            BusUnavailableError: not read within a minute.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                store = await self._open()
                info = await store.get_info(name)
                if (info.size or 0) > limit_bytes:
                    raise NotFoundError(f"object {name}: at most {limit_bytes} bytes, it has {info.size}")
                return (await store.get(name)).data or b""
        except nats.js.errors.ObjectNotFoundError as error:
            raise NotFoundError(f"object {name} does not exist") from error
        except (nats.errors.Error, TimeoutError) as error:
            raise BusUnavailableError(f"object {name}: {error}") from error

    async def _put(self, name: str, source: BinaryIO) -> str:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                store = await self._open()
                try:
                    await store.get_info(name)
                except nats.js.errors.ObjectNotFoundError:
                    failpoint("objects.put.before")
                    await store.put(name, source)  # type: ignore[arg-type] # any readable is accepted
                    failpoint("objects.put.after")
        except (nats.errors.Error, TimeoutError) as error:
            raise BusUnavailableError(f"object {name}: {error}") from error
        return name

    async def _open(self) -> ObjectStore:
        if self._store is None:
            self._store = await self._bus.client.jetstream().object_store(subjects.OBJECTS)
        return self._store

    async def pack(self, data: bytes) -> tuple[bytes, Headers]:
        """What to publish for `data`: itself, or over 512 KiB an empty payload that refers to it."""
        if len(data) <= INLINE_LIMIT_BYTES:
            return data, {}
        return b"", {subjects.H_OBJECT: await self.put(data)}

    async def unpack(self, data: bytes, headers: Headers) -> bytes:
        """The payload that `pack` was given."""
        name = headers.get(subjects.H_OBJECT)
        return data if name is None else await self.get(name)
