"""What is known of a request while it is paid for."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from fairlead_agent.models.interface import Finish, ModelError, ModelRequest


@dataclass(slots=True)
class Payment:
    """A request for which what it may cost is reserved. Who reads the reply fills in what came of it.

    Fields:
        request: what to send; its reply may be limited further than that of the one that was asked for.
        answered: a part of a reply came. finish: the end of the reply, once that came.
        counted: its usage is recorded. Set when it is settled.
    """

    request: ModelRequest
    answered: bool = False
    finish: Finish | None = None
    counted: bool = False

    def is_free(self, error: BaseException | None) -> bool:
        """Whether a request that ended with `error` cannot have cost anything: its provider refused it."""
        return isinstance(error, ModelError) and not self.answered and not error.uncertain


# Reserves for one request to the model of this name, and settles it after.
Pay = Callable[[str, ModelRequest], AbstractAsyncContextManager[Payment]]
