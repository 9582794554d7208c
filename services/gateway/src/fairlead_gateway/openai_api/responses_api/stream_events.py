"""Types of the events of a streamed response. Only the OpenAPI document is made from them.

All are numbered from 0 by `sequence_number`; for what they are about see `output.py`.
"""

from typing import Any

import msgspec

from fairlead_gateway.openai_api.responses_api.objects import (
    OutputItem,
    OutputText,
    ResponseObject,
    SummaryText,
)


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    sequence_number: int


class _Whole(_Event, frozen=True, kw_only=True):
    response: ResponseObject


class ResponseCreated(_Whole, frozen=True, kw_only=True, tag="response.created"):
    """The first event: the response as it is before anything happens."""


class ResponseInProgress(_Whole, frozen=True, kw_only=True, tag="response.in_progress"):
    """The second event."""


class ResponseCompleted(_Whole, frozen=True, kw_only=True, tag="response.completed"):
    """The last event of a response that is whole, or waits for an approval or for results of tools."""


class ResponseIncomplete(_Whole, frozen=True, kw_only=True, tag="response.incomplete"):
    """The last event of a response that was cut off."""


class ResponseFailed(_Whole, frozen=True, kw_only=True, tag="response.failed"):
    """The last event of a response without an answer, also of one that was cancelled."""


class StreamProblem(_Event, frozen=True, kw_only=True, tag="error"):
    """The last event of a stream whose response goes on without it."""

    code: str
    message: str
    param: None


class _Item(_Event, frozen=True, kw_only=True):
    output_index: int
    item: OutputItem


class OutputItemAdded(_Item, frozen=True, kw_only=True, tag="response.output_item.added"):
    """An item begins."""


class OutputItemDone(_Item, frozen=True, kw_only=True, tag="response.output_item.done"):
    """An item is whole."""


class _OfItem(_Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class _OfContent(_OfItem, frozen=True, kw_only=True):
    content_index: int


class ContentPartAdded(_OfContent, frozen=True, kw_only=True, tag="response.content_part.added"):
    """Words of a message begin."""

    part: OutputText


class ContentPartDone(_OfContent, frozen=True, kw_only=True, tag="response.content_part.done"):
    """Words of a message are whole."""

    part: OutputText


class OutputTextDelta(_OfContent, frozen=True, kw_only=True, tag="response.output_text.delta"):
    """More words of a message."""

    delta: str
    logprobs: list[dict[str, Any]]


class OutputTextDone(_OfContent, frozen=True, kw_only=True, tag="response.output_text.done"):
    """All words of a message."""

    text: str
    logprobs: list[dict[str, Any]]


class _OfSummary(_OfItem, frozen=True, kw_only=True):
    summary_index: int


class SummaryPartAdded(_OfSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_part.added"):
    """Thoughts begin."""

    part: SummaryText


class SummaryPartDone(_OfSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_part.done"):
    """Thoughts are whole."""

    part: SummaryText


class SummaryTextDelta(_OfSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_text.delta"):
    """More thoughts."""

    delta: str


class SummaryTextDone(_OfSummary, frozen=True, kw_only=True, tag="response.reasoning_summary_text.done"):
    """All thoughts of an item."""

    text: str


class OwnCallBegun(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.in_progress"):
    """The agent calls a tool of its own."""


class OwnCallCompleted(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.completed"):
    """A tool of the agent has a result."""


class OwnCallFailed(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call.failed"):
    """A tool of the agent has failed."""


class OwnArgumentsDelta(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call_arguments.delta"):
    """What a tool of the agent is called with, as JSON."""

    delta: str


class OwnArgumentsDone(_OfItem, frozen=True, kw_only=True, tag="response.mcp_call_arguments.done"):
    """All that a tool of the agent is called with."""

    arguments: str


class FunctionArgumentsDelta(
    _OfItem, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"
):
    """What a tool of the client is called with, as JSON."""

    delta: str


class FunctionArgumentsDone(_OfItem, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    """All that a tool of the client is called with."""

    name: str
    arguments: str


ResponseStreamEvent = (
    ResponseCreated
    | ResponseInProgress
    | ResponseCompleted
    | ResponseIncomplete
    | ResponseFailed
    | StreamProblem
    | OutputItemAdded
    | OutputItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryTextDelta
    | SummaryTextDone
    | OwnCallBegun
    | OwnCallCompleted
    | OwnCallFailed
    | OwnArgumentsDelta
    | OwnArgumentsDone
    | FunctionArgumentsDelta
    | FunctionArgumentsDone
)
