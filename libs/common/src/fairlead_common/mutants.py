"""Deliberate faults: a switch for tests only, to prove that the chaos oracle sees what it should.

`FAIRLEAD_MUTANT=<name>` breaks one guarantee on purpose, and only where `FAIRLEAD_TEST=1` is set too.
Both are read once, when the process starts. Without them `active` is a look into an empty set.
"""

import os
from collections.abc import Mapping
from typing import Final

NAMES: Final = frozenset(
    {
        "ack_before_work",  # agent: a wake-up is acknowledged and forgotten before the work; no sweeper
        "claim_with_ttl",  # tools: a call is started although somebody else claimed it
        "wrong_sequence_is_loss",  # bus: a refused append is written again under a new id
        "no_lease",  # bus: everybody gets every lease; alone it must break nothing
        "no_fence",  # bus: log entries are appended without an expectation
        "close_without_fence",  # agent: a run ends although new mail arrived
        "no_second_look",  # agent: mail before the end of a run counts as consumed; alone it breaks nothing
        "no_journal_gate",  # runner: a command is started although its journal says `started`
        "retry_unknown",  # tools: a command of unknown outcome is run again
        "result_overwrite",  # tools: a result is written without create-only
        "result_again",  # agent: a result of a call that has one is taken too; alone it breaks nothing
        "no_tombstone",  # runner: nothing is kept of a call whose outcome was delivered
        "cancel_without_claim",  # agent: a call counts as taken back though its claim was not won
        "no_approval",  # agent: what a person should decide is allowed at once
        "approval_by_order",  # agent: a decision counts for the approval that is open, whichever it was about
        "slot_overwrite",  # scheduler: a slot is written without create-only
        "prompt_again",  # gateway: a prompt is written without create-only
        "accept_before_stored",  # gateway: a prompt is accepted, and stored a moment later
        "events_from_now",  # gateway: an event stream that is resumed begins with what is new
        "discard_old",  # streams: sessions are bounded, and the oldest records make room
    }
)


def chosen(environ: Mapping[str, str]) -> frozenset[str]:
    """The mutants that this environment switches on: none unless `FAIRLEAD_TEST=1` is set.

    Raises:
        ValueError: a name is unknown; a test that broke nothing would prove nothing.
    """
    names = frozenset(name for name in environ.get("FAIRLEAD_MUTANT", "").split(",") if name)
    if not names or environ.get("FAIRLEAD_TEST") != "1":
        return frozenset()
    if unknown := names - NAMES:
        raise ValueError(f"FAIRLEAD_MUTANT: unknown {sorted(unknown)}, must be of {sorted(NAMES)}")
    return names


_ACTIVE: Final = chosen(os.environ)


def active(name: str) -> bool:
    """Whether this process runs with the mutant `name`. Always False outside tests."""
    return name in _ACTIVE
