"""The plans of the mutants."""

import pytest

from tests.chaos.mutants import NAMES
from tests.chaos.plans import MUTANTS
from tests.chaos.run import shape_of


def test_plans_name_mutants_that_exist() -> None:
    assert MUTANTS.keys() <= NAMES
    assert {wish.beside for wish in MUTANTS.values() if wish.beside} <= NAMES


@pytest.mark.process  # which sandboxes are here is asked of Docker
def test_plan_switches_its_mutant_on_and_its_control_only_what_breaks_nothing() -> None:
    for name, wish in MUTANTS.items():
        on, weights = shape_of(1, wish)
        off, same = shape_of(1, wish.without_mutant())
        assert on.mutant.split(",")[0] == name
        assert off.mutant in ("", "no_lease")
        assert weights == same
