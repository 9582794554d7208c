"""A disk of its own, small enough to be filled: an ext4 image on a loop device, or a tmpfs."""

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

MIB = 1 << 20
QUIET_S = 0.3  # files of calls that ended are removed a moment later


class SmallDisk:
    """A mounted disk of `size_mib`; `folder` is its root."""

    starts = "process"

    def __init__(self, folder: Path, *, size_mib: int = 96) -> None:
        self.folder = folder
        self._image = folder.with_suffix(".img")
        self._size_mib = size_mib
        self._filler = folder / "filler"

    def mount(self) -> str:
        """Why it cannot be had here; empty when it is mounted."""
        self.folder.mkdir(parents=True)
        return self._mount_image() and self._mount_memory()

    def __enter__(self) -> Self:
        if problem := self.mount():
            pytest.skip(f"no disk can be mounted here: {problem}")
        return self

    def _mount_image(self) -> str:
        with self._image.open("wb") as file:
            file.truncate(self._size_mib * MIB)
        return _run(
            "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-N", "4096", str(self._image)
        ) or _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def _mount_memory(self) -> str:
        return _run(
            "mount", "-t", "tmpfs", "-o", f"size={self._size_mib}m,nr_inodes=4096", "tmpfs", str(self.folder)
        )

    def __exit__(self, *_: object) -> None:
        _run("umount", "-l", str(self.folder))
        self._image.unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Let something else take the space, but for `leave_bytes`, and what is given back soon after."""
        deadline = time.monotonic() + 10
        quiet_since = time.monotonic()
        while time.monotonic() < quiet_since + QUIET_S and time.monotonic() < deadline:
            if self.free_bytes > leave_bytes:
                self._take(leave_bytes)
                quiet_since = time.monotonic()
            time.sleep(0.02)

    def _take(self, leave_bytes: int) -> None:
        with self._filler.open("ab", buffering=0) as file:
            while (left := self.free_bytes - leave_bytes) > 0:
                try:
                    file.write(b"\0" * min(left, MIB))
                except OSError:
                    with contextlib.suppress(OSError):
                        while file.write(b"\0" * 512):
                            pass
                    return

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink(missing_ok=True)


def _run(*command: str) -> str:
    """Why it failed; empty when it did not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"status {done.returncode}" if done.returncode else ""
