"""Which runs of a job's own session its model is shown: the open one, and earlier ones as far as they fit.

A job that runs every day in one session would otherwise fill the window of its model and fail for good. All
runs stay in the log.
"""

from collections.abc import Container, Sequence
from typing import Final

import msgspec

from fairlead_agent.turn.context import BYTES_PER_TOKEN, message_tokens
from fairlead_common.protocol.content import AssistantMessage, UserMessage
from fairlead_common.session_log.conversation import Item

SENDER: Final = "cron"  # of the prompts of jobs
EARLIER_SHARE: Final = 0.4  # of the window, for earlier runs


def first_shown(items: Sequence[Item], window_tokens: int, left_out: Container[str] = ()) -> int:
    """Index of the first item that is shown; 0 in sessions that are no job's own.

    It depends on what was said before the last run alone: it stays the same throughout a run, and for
    whoever takes the session over. Runs are left out whole, so no call is without its result.

    Args:
        window_tokens: what fits into a request.
        left_out: entries that requests leave out anyway.
    """
    if not items or not _begins_run(items[0]):
        return 0
    left = int(EARLIER_SHARE * window_tokens)
    first = next(index for index in range(len(items) - 1, -1, -1) if _begins_run(items[index]))
    for index in range(first - 1, -1, -1):
        left -= 0 if items[index].entry_id in left_out else _tokens(items[index])
        if left < 0:
            break
        if _begins_run(items[index]):
            first = index
    return first


def _begins_run(item: Item) -> bool:
    return isinstance(item.message, UserMessage) and item.message.sender == SENDER


def _tokens(item: Item) -> int:
    if isinstance(item.message, AssistantMessage):
        return len(msgspec.json.encode(item.message.content)) // BYTES_PER_TOKEN
    return message_tokens(item.message)
