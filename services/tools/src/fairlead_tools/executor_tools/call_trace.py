"""The trace that the call of an executor tool belongs to, for tools that pass it on."""

from contextvars import ContextVar
from typing import Final

CALL_TRACE: Final = ContextVar[str | None]("CALL_TRACE", default=None)  # a `traceparent`
