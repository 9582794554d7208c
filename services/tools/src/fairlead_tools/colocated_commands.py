"""Commands that run beside this process, whichever executor asked for them: they end with its container."""

from collections.abc import Iterator
from pathlib import Path

from fairlead_common.protocol.ids import is_id
from fairlead_tools.runner.process.environment import CALL_VARIABLE

_MARK = f"{CALL_VARIABLE}=".encode()


def running_here(state: Path) -> set[str]:
    """The calls with a command that this process can see, and whose end the runner has not written down.

    What was started in the background does not count: the call that started it has ended.

    Args:
        state: the private folder of this host's executors.
    """
    seen = set(_calls_of_processes())
    return {
        call for call in seen for runner in (state / "runners").glob("*") if _is_open(runner / "calls" / call)
    }


def _is_open(call: Path) -> bool:
    return (call / "started").exists() and not (call / "exit").exists()


def _calls_of_processes() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:  # it ended, or is not ours
            continue
        for each in variables:
            call = each.removeprefix(_MARK).decode("ascii", "replace")
            if each.startswith(_MARK) and is_id(call):
                yield call
