"""Concurrency slots of isolated runs, taken and released by compare-and-set across schedulers."""

import msgspec

from fairlead_common.cron.jobs import Overlap
from fairlead_scheduler.runs.concurrency import RunAdmission, admit
from fairlead_scheduler.runs.run_store import FINAL, ConcurrencyState, RunStore


class ConcurrencySlots:
    """Slots held by runs, which are named `<job>.<slot>`."""

    def __init__(self, run_store: RunStore) -> None:
        self._run_store = run_store

    async def take(self, key: str, overlap: Overlap, ahead: int, limit: int) -> RunAdmission:
        """Admit the run `key`; it holds a slot if the verdict is `run`. See `concurrency.admit`."""
        verdict = RunAdmission("wait")

        def change(concurrency: ConcurrencyState) -> ConcurrencyState | None:
            nonlocal verdict
            verdict = admit(concurrency.running, key, overlap, ahead, limit)
            if verdict.kind != "run":
                return None
            if key in concurrency.running:
                return concurrency
            return msgspec.structs.replace(concurrency, running=[*concurrency.running, key])

        await self._run_store.change_concurrency(change)
        return verdict

    async def leave(self, keys: set[str]) -> None:
        """Release the slots of these runs."""
        await self._run_store.change_concurrency(
            lambda concurrency: msgspec.structs.replace(
                concurrency, running=[key for key in concurrency.running if key not in keys]
            )
        )

    async def clear(self) -> None:
        """Release slots of runs that have ended, where a crash came before their release."""
        concurrency, _ = await self._run_store.concurrency()
        gone = set()
        for key in concurrency.running:
            job, _, slot = key.partition(".")
            known = await self._run_store.run(job, slot)
            if known is None or known[0].status in FINAL or known[0].status == "retrying":
                gone.add(key)
        if gone:
            await self.leave(gone)
