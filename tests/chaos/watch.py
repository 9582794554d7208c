"""Who watches the oracle: each mutant breaks one guarantee on purpose, and must be caught."""

import asyncio
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.chaos import slots
from tests.chaos.plans import MUTANTS, POINT_MUTANTS, SLOT_MUTANTS
from tests.chaos.points.tier import Batch
from tests.chaos.run import run_seed

TRIES = 5  # runs that a mutant gets to show itself
PATIENCE_S = 12.0
SETTLE_S = 5.0  # in which the next executor adopts a call
ALL = (*MUTANTS, *POINT_MUTANTS, *SLOT_MUTANTS)


@dataclass
class Caught:
    """What became of one mutant. `kinds` of violations; none: no one noticed."""

    mutant: str
    tier: str
    runs: int = 0
    kinds: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def row(self) -> str:
        """One line of the table."""
        how = ", ".join(self.kinds) or "NOT CAUGHT"
        return f"{self.mutant:24s} {self.tier:7s} {self.runs:3d} runs  {self.seconds:5.0f} s  {how}"

    def as_dict(self) -> dict[str, Any]:
        return {**vars(self), "seconds": round(self.seconds, 1)}


def catch(mutant: str, root: Path, *, first: int = 1, tries: int = TRIES) -> Caught:
    """Run until it is caught, or often enough."""
    began = time.monotonic()
    how = _at_random if mutant in MUTANTS else _at_its_point if mutant in POINT_MUTANTS else _in_slots
    try:
        caught = how(mutant, root, first, tries)
    except (AssertionError, OSError) as error:  # on a busy machine a stack may not come up
        print(f"{mutant}: once more, for {str(error)[:200]}")
        caught = how(mutant, root, first + tries, tries)
    caught.seconds = time.monotonic() - began
    return caught


def _at_random(mutant: str, root: Path, first: int, tries: int) -> Caught:
    caught = Caught(mutant, "random")
    while not caught.kinds and caught.runs < tries:
        run = run_seed(first + caught.runs, MUTANTS[mutant], root)
        caught.runs += 1
        caught.kinds = sorted({violation.kind for violation in run.violations})
    return caught


def _at_its_point(mutant: str, root: Path, first: int, tries: int) -> Caught:
    caught = Caught(mutant, "points")
    wish = POINT_MUTANTS[mutant]
    folder = (root / f"points-{mutant}").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    names = ",".join(filter(None, (mutant, wish.beside)))
    with Batch(folder, names, PATIENCE_S, SETTLE_S) as batch:
        while not caught.kinds and caught.runs < tries:
            run = batch.run(replace(wish.spec, seed=first + caught.runs))
            caught.runs += 1
            caught.kinds = sorted({violation.kind for violation in run.violations})
    return caught


def _in_slots(mutant: str, root: Path, first: int, tries: int) -> Caught:
    caught = Caught(mutant, "slots")
    while not caught.kinds and caught.runs < tries:
        folder = (root / f"slots-{mutant}-{caught.runs}").absolute()
        shutil.rmtree(folder, ignore_errors=True)
        made = slots.run_seed(
            first + caught.runs, folder, mutant=f"no_lease,{mutant}", seconds=1.0, settle_s=2.0
        )
        run = asyncio.run(made)
        caught.runs += 1
        caught.kinds = ["SLOT"] if any("was fired" in violation for violation in run.violations) else []
    return caught


def catch_all(root: Path, *, stacks: int = 2, names: Iterable[str] = ALL) -> list[Caught]:
    """All of them, some side by side, with a line for each."""

    def one(mutant: str) -> Caught:
        caught = catch(mutant, root)
        print(caught.row(), flush=True)
        return caught

    with ThreadPoolExecutor(stacks) as pool:
        return list(pool.map(one, names))
