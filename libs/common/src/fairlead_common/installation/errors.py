"""Exit codes and the one error that commands end with."""

from collections.abc import Callable
from typing import Final

from fairlead_common.errors import EXIT_CONFIG

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_APPROVED: Final = 3
ABORTED: Final = 4
TIMED_OUT: Final = 5
LIMIT: Final = 6
UNKNOWN: Final = 7
TRUNCATED: Final = 8
UNREACHABLE: Final = 69  # EX_UNAVAILABLE
CONFIG: Final = EXIT_CONFIG

BY_OUTCOME: Final[dict[str, int]] = {
    "completed": OK,
    "failed": FAILED,
    "waiting_approval": NOT_APPROVED,
    "waiting_budget": NOT_APPROVED,
    "requires_action": NOT_APPROVED,
    "waiting_provider": UNREACHABLE,
    "aborted": ABORTED,
    "timed_out": TIMED_OUT,
    "turn_limit": LIMIT,
    "budget": LIMIT,
    "unknown": UNKNOWN,
    "truncated": TRUNCATED,
}


class CommandError(Exception):
    """Ends the command: the text goes to standard error, `code` is the exit status.

    Fields:
        hint: gives more to say; only asked for if the command ends with this error.
    """

    def __init__(self, text: str, code: int = FAILED) -> None:
        super().__init__(text)
        self.code = code
        self.hint: Callable[[], str] | None = None
