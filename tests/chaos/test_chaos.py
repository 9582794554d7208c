"""The short tier of the chaos runs, and the proof that the oracle would see a broken promise.

A seed that failed is run again by `python -m tests.chaos.run --seed <seed>`.
"""

import os
from pathlib import Path

import pytest

from tests.chaos.run import EVIDENCE, Wish, row, run_seed

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

FIRST = int(os.environ.get("FAIRLEAD_CHAOS_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("FAIRLEAD_CHAOS_RUNS", "4")))

# For each mutant, the faults that bring it to light.
MUTANTS: dict[str, Wish] = {}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept_under_faults(seed: int) -> None:
    run = run_seed(seed, Wish(seconds=12.0), EVIDENCE)
    print(row(run))
    assert run.violations == [], run.folder
    assert run.valid, run.trouble or f"faults that did not land, see {run.folder}"


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutant_is_caught(mutant: str, tmp_path: Path) -> None:
    caught = None
    for seed in range(FIRST, FIRST + 4):
        run = run_seed(seed, MUTANTS[mutant], tmp_path)
        print(mutant, row(run), {violation.kind for violation in run.violations})
        if run.violations:
            caught = run
            break
    assert caught, f"nobody noticed {mutant}"
