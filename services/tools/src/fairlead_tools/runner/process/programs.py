"""Programs that a tool starts: bounded in time and output, with a small environment, killed with the tool."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import NamedTuple

from fairlead_tools.runner import linux
from fairlead_tools.runner.process import environment

MAX_OUTPUT_BYTES = 2_000_000
MAX_ERROR_BYTES = 20_000


class Done(NamedTuple):
    """Result of a program. `code` is None after a timeout; `cut`: stopped because it printed too much."""

    code: int | None
    output: bytes
    errors: str
    cut: bool = False

    @property
    def text(self) -> str:
        """The output as text."""
        return self.output.decode("utf-8", "replace")


def run(
    argv: list[str],
    *,
    cwd: str,
    variables: Mapping[str, str],
    timeout_s: float,
    stdin: bytes = b"",
    keep: int = -1,
) -> Done:
    """Start a program and wait for its end, or for `timeout_s`.

    Args:
        keep: a file descriptor that it inherits, such as of the folder that `cwd` spells.
        variables: beside those that every command gets.

    Raises:
        OSError: it cannot be started.
    """
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        pass_fds=(keep,) if keep >= 0 else (),
        env={**environment.plain(os.environ), **environment.inherited_marks(), **variables},
        preexec_fn=_die_with_us,  # this process has one thread
    ) as process:
        try:
            return _follow(process, stdin, time.monotonic() + timeout_s)
        finally:
            process.kill()


def _die_with_us() -> None:
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)


def _follow(process: subprocess.Popen[bytes], stdin: bytes, end: float) -> Done:
    output, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        _watch(selector, process, output, errors, has_input=bool(stdin))
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                return Done(None, bytes(output), _words(errors))
            for key, _ in selector.select(left):
                if key.data is None:
                    stdin = _feed(key.fd, stdin)
                    if not stdin and process.stdin is not None:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                data = os.read(key.fd, 65_536)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.data is output or len(errors) < MAX_ERROR_BYTES:
                    key.data.extend(data)
            if len(output) > MAX_OUTPUT_BYTES:
                return Done(0, bytes(output[:MAX_OUTPUT_BYTES]), _words(errors), cut=True)
    try:
        code = process.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return Done(None, bytes(output), _words(errors))
    return Done(code, bytes(output), _words(errors))


def _watch(
    selector: selectors.DefaultSelector,
    process: subprocess.Popen[bytes],
    output: bytearray,
    errors: bytearray,
    *,
    has_input: bool,
) -> None:
    for pipe, into in ((process.stdout, output), (process.stderr, errors)):
        if pipe is not None:
            selector.register(pipe, selectors.EVENT_READ, into)
    if has_input and process.stdin is not None:
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)


def _feed(fd: int, data: bytes) -> bytes:
    try:
        return data[os.write(fd, data) :]
    except BlockingIOError:
        return data
    except OSError:
        return b""


def _words(errors: bytearray) -> str:
    return bytes(errors).decode("utf-8", "replace").strip()
