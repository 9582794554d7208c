"""What a tool of the executor asks people with, in the middle of a call."""

from contextvars import ContextVar
from typing import Final, Protocol

from fairlead_common.protocol.questions import Question, QuestionAnswer

CANCELLED: Final = QuestionAnswer(action="cancel")


class CallAsker(Protocol):
    """Asks people in the name of one call."""

    @property
    def may_ask(self) -> bool:
        """Whether a person may be asked at all."""

    async def ask(self, question: Question) -> QuestionAnswer:
        """The answer of a person; `cancel` if there is none. The time of the call stands still meanwhile."""


ASKING: Final = ContextVar[CallAsker | None]("ASKING", default=None)  # of the call that runs here
