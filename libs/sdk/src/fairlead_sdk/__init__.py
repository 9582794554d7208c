"""Fairlead for programs: a typed client of the HTTP API, and tools over NATS."""

from typing import TYPE_CHECKING

from fairlead_sdk.client import Client
from fairlead_sdk.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from fairlead_sdk.events import Event
from fairlead_sdk.models import Answer, Approval, PlanStep, PromptLimits, PromptStored, ServerPrompt, Session

if TYPE_CHECKING:
    from fairlead_sdk.tools import Call, Tool, ToolError, ToolServer, tool

__all__ = [
    "Answer",
    "ApiError",
    "Approval",
    "Call",
    "Client",
    "ConflictError",
    "Event",
    "ForbiddenError",
    "InvalidInputError",
    "NotFoundError",
    "PlanStep",
    "PromptLimits",
    "PromptStored",
    "ServerPrompt",
    "Session",
    "Tool",
    "ToolError",
    "ToolServer",
    "UnauthorizedError",
    "UnavailableError",
    "tool",
]

_OF_TOOLS = frozenset({"Call", "Tool", "ToolError", "ToolServer", "tool"})


def __getattr__(name: str) -> object:
    """Tools are loaded when they are used: who only talks HTTP does without the client of NATS."""
    if name not in _OF_TOOLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fairlead_sdk import tools

    return getattr(tools, name)
