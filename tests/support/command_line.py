"""`fairlead <words>` in the test's own process, where a hundred processes would take too long to start."""

import io
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from fairlead.main import main


class Done(NamedTuple):
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


def run_here(environ: Mapping[str, str], *words: str) -> Done:
    """Run the command with these variables set. Not while another thread prints."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in environ.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            main(list(words))
    return Done(int(str(end.value.code or 0)), out.getvalue(), err.getvalue())
