"""What is to be done on the machine: files and commands, shown first or done."""

import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fairlead_common.installation.errors import FAILED, CommandError

COMMAND_TIMEOUT_S: Final = 90.0  # a stop may take as long as work is handed over


class MakeFolder(NamedTuple):
    """A folder that has to be there."""

    path: Path
    mode: int = 0o755
    owner: tuple[int, int] | None = None


class WriteFile(NamedTuple):
    """A file that has to hold this text. `shown` is for people, where the text holds keys."""

    path: Path
    text: str
    mode: int = 0o644
    shown: str | None = None
    owner: tuple[int, int] | None = None


class RunCommand(NamedTuple):
    """A command that `may_fail`, or is tried again for `patience_s` while it does."""

    argv: list[str]
    may_fail: bool = False
    patience_s: float = 0.0


ServiceAction = MakeFolder | WriteFile | RunCommand


def show(steps: Sequence[ServiceAction], say: Callable[[str], None]) -> None:
    """Print what would be done."""
    for step in steps:
        match step:
            case MakeFolder(path, mode, _):
                if not path.is_dir():
                    say(f"# make {path} (mode {mode:04o})")
            case WriteFile(path, text, mode, shown, _):
                say(f"# write {path} (mode {mode:04o})")
                say((text if shown is None else shown).rstrip("\n"))
                say("")
            case RunCommand(argv):
                say(f"# run\n{shlex.join(argv)}\n")


def differs(file: WriteFile) -> bool:
    """Whether the file is not there as it should be."""
    try:
        info = file.path.lstat()
        return file.path.read_text("utf-8") != file.text or (info.st_mode & 0o777) != file.mode
    except (OSError, UnicodeDecodeError):
        return True


def do(step: ServiceAction) -> str:
    """Do it; what a command printed.

    Raises:
        CommandError: it does not work; the text says what was tried.
    """
    try:
        match step:
            case MakeFolder():
                _make(step)
            case WriteFile():
                _write(step)
            case RunCommand():
                return _patiently(step)
    except OSError as error:
        raise CommandError(f"{getattr(step, 'path', step)}: {error.strerror or error}", FAILED) from error
    return ""


def _patiently(step: RunCommand) -> str:
    deadline = time.monotonic() + step.patience_s
    while True:
        try:
            return run(step.argv, may_fail=step.may_fail)
        except CommandError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(1.0)


def run(argv: Sequence[str], *, may_fail: bool = False, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    """Standard output of a command.

    Raises:
        CommandError: it cannot be run, takes too long, or fails and may not.
    """
    try:
        done = subprocess.run(
            list(argv),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise CommandError(f"{argv[0]} is not installed", FAILED) from error
    except (OSError, subprocess.SubprocessError) as error:
        raise CommandError(f"`{shlex.join(argv)}`: {error}", FAILED) from error
    if done.returncode and not may_fail:
        said = (done.stderr.strip() or done.stdout.strip() or "it printed nothing")[-600:]
        raise CommandError(f"`{shlex.join(argv)}` ended with status {done.returncode}: {said}", FAILED)
    return done.stdout


def _make(folder: MakeFolder) -> None:
    if folder.path.is_dir():
        return
    folder.path.mkdir(mode=folder.mode, parents=True)
    folder.path.chmod(folder.mode)
    if folder.owner is not None:
        os.chown(folder.path, *folder.owner, follow_symlinks=False)


def _write(file: WriteFile) -> None:
    file.path.parent.mkdir(parents=True, exist_ok=True)
    draft = file.path.with_name(f".{file.path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(file.text)
        out.flush()
        os.fsync(out.fileno())
        os.fchmod(out.fileno(), file.mode)
        if file.owner is not None:
            os.fchown(out.fileno(), *file.owner)
    draft.replace(file.path)
