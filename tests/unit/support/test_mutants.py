"""The switch for deliberate faults."""

import pytest

from fairlead_common import mutants


def test_mutant_is_inactive_without_the_test_switch() -> None:
    assert mutants.chosen({"FAIRLEAD_MUTANT": "no_fence"}) == frozenset()
    assert mutants.chosen({"FAIRLEAD_MUTANT": "no_fence", "FAIRLEAD_TEST": "0"}) == frozenset()


def test_mutant_is_active_with_both_variables() -> None:
    environ = {"FAIRLEAD_MUTANT": "no_fence,retry_unknown", "FAIRLEAD_TEST": "1"}
    assert mutants.chosen(environ) == {"no_fence", "retry_unknown"}


def test_unknown_mutant_is_refused() -> None:
    with pytest.raises(ValueError, match="no_such"):
        mutants.chosen({"FAIRLEAD_MUTANT": "no_such", "FAIRLEAD_TEST": "1"})


def test_this_process_runs_without_mutants() -> None:
    assert not any(mutants.active(name) for name in mutants.NAMES)
