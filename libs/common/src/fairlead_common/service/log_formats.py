"""What may be written to logs: chosen formats of records, and entries, that every live service reads.

Readers come one release before writers. Records of several entries are written by default, and
`FAIRLEAD_LOG_FORMAT=1` keeps to one entry, for those who may go back to a version that reads no others.
Services announce what they read with their other metadata (see `process.register`). An agent that cannot read
a record lets the session go; a gateway, a scheduler and a page of the version before pass over it, so they
have to be gone before the format is chosen.
"""

from typing import Final

from fairlead_common.bus.requests import MicroInfo
from fairlead_common.session_log.records import ONE_ENTRY, READ_FORMATS

METADATA: Final = "log_formats"
ENTRIES: Final = "log_entries"
TOOL_LIST: Final = "tool_list"
HOOK_DECISION: Final = "hook_decision"
HOOK_CONTEXT: Final = "hook_context"
HOOK_CALLS: Final = "hook_calls"  # and `hook_result`
WAITING_BUDGET: Final = "waiting_budget"
BUDGET_RESERVATION: Final = "budget_reservation"  # and `budget_settlement`
WAITING_PROVIDER: Final = "waiting_provider"
BRANCHES: Final = "branches"  # all of `branch_entries`
QUESTIONS: Final = "questions"  # requests for approval that are questions
UNDO_FILES: Final = "undo_files"  # `undo_request` and `files_restored`
CALL_QUESTIONS: Final = "call_questions"  # questions that came up in calls that run
USER_BUDGETS: Final = "user_budgets"  # reservations that count for the budgets of a user
REQUIRES_ACTION: Final = "requires_action"  # runs that wait for results of a client's tools
# Types of entries, and outcomes of runs, that versions before this one do not read.
READ_ENTRIES: Final = frozenset(
    {
        *(TOOL_LIST, HOOK_DECISION, HOOK_CONTEXT, HOOK_CALLS, BUDGET_RESERVATION),
        *(WAITING_BUDGET, WAITING_PROVIDER, BRANCHES, QUESTIONS, UNDO_FILES),
        *(REQUIRES_ACTION, CALL_QUESTIONS, USER_BUDGETS),
    }
)


def announced() -> dict[str, str]:
    """What a service of this version announces."""
    return {
        METADATA: ",".join(map(str, sorted(READ_FORMATS))),
        ENTRIES: ",".join(sorted(READ_ENTRIES)),
    }


def read_by(info: MicroInfo) -> frozenset[int | str]:
    """The formats and the newer types of entries that a service reads; format 1 if it announces none."""
    formats, entries = (_parts(info, name) for name in (METADATA, ENTRIES))
    found = frozenset(int(each) for each in formats if len(each) < 9 and each.isascii() and each.isdecimal())
    return (found or frozenset({ONE_ENTRY})) | frozenset(entries)


def _parts(info: MicroInfo, name: str) -> list[str]:
    told = (info.metadata or {}).get(name, "")
    return [each for each in told.split(",") if each] if isinstance(told, str) else []
