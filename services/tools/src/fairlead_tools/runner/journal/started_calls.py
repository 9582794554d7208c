"""The starts: which calls passed the gate, in one file, so that the disk is waited for once a call.

After a kill the files of a call tell what became of it. After a power cut they may be gone, for no one
waits for them; a call that is named here then counts as started, and so is `unknown`.

The file is written over zeros, which are mostly on the disk already: nothing but the record has to be synced.
"""

from __future__ import annotations

import os
import re

from fairlead_tools.runner.failpoints import failpoint

RECORD_BYTES = 65  # a call id of at most 64 characters, padded, and a newline
GROW_BYTES = RECORD_BYTES * 1024
TRIM_BYTES = GROW_BYTES * 4

_ID = re.compile(rb"([A-Za-z0-9_-]{1,64}) *\Z")
_sync_data = getattr(os, "fdatasync", os.fsync)


class StartedCalls:
    """The file of one runner, which holds the lock of its directory."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._end = 0
        self.known = self._read()

    def _read(self) -> list[str]:
        found = []
        for position in range(0, self._size, RECORD_BYTES):
            match = _ID.match(os.pread(self._fd, RECORD_BYTES, position).rstrip(b"\n"))
            if match is None:
                continue  # zeros, or a record that a power cut tore: its call was not let go
            found.append(match[1].decode("ascii"))
            self._end = position + RECORD_BYTES
        return found

    def add(self, call_id: str) -> None:
        """Name a call. It is on the disk when this returns.

        Raises:
            OSError: the disk did not take it; the call must not run.
        """
        if self._end + RECORD_BYTES > self._size:
            self._grow()  # synced with the record
        record = call_id.encode("ascii").ljust(RECORD_BYTES - 1) + b"\n"
        if os.pwrite(self._fd, record, self._end) != RECORD_BYTES:
            raise OSError(28, "the record was cut off")
        failpoint("runner.start_list.before")
        _sync_data(self._fd)
        failpoint("runner.start_list.after")
        self._end += RECORD_BYTES

    def _grow(self) -> None:
        if os.pwrite(self._fd, bytes(GROW_BYTES), self._size) != GROW_BYTES:
            raise OSError(28, "there is no room for more records")
        self._size += GROW_BYTES

    def trim(self) -> None:
        """Begin again if the file is long, once all that it stands for is on the disk by itself."""
        if self._size < TRIM_BYTES:
            return
        os.sync()
        os.ftruncate(self._fd, 0)
        os.fsync(self._fd)
        self._size = self._end = 0
        self.known = []
