"""The places of the lane: taken and left by compare-and-set, so that any number of schedulers agree."""

import msgspec

from fairlead_common.cron.jobs import Overlap
from fairlead_scheduler.runs.concurrency import Verdict, admit
from fairlead_scheduler.runs.run_store import FINAL, ConcurrencyState, RunStore


class ConcurrencySlots:
    """Of isolated runs, by the names `<job>.<slot>`."""

    def __init__(self, ledger: RunStore) -> None:
        self._ledger = ledger

    async def take(self, key: str, overlap: Overlap, ahead: int, limit: int) -> Verdict:
        """What becomes of the run `key`; it has its place if that is to run. See `lane.admit`."""
        verdict = Verdict("wait")

        def change(lane: ConcurrencyState) -> ConcurrencyState | None:
            nonlocal verdict
            verdict = admit(lane.running, key, overlap, ahead, limit)
            if verdict.kind != "run":
                return None
            if key in lane.running:
                return lane
            return msgspec.structs.replace(lane, running=[*lane.running, key])

        await self._ledger.change_lane(change)
        return verdict

    async def leave(self, keys: set[str]) -> None:
        """These runs have no place any more."""
        await self._ledger.change_lane(
            lambda lane: msgspec.structs.replace(
                lane, running=[key for key in lane.running if key not in keys]
            )
        )

    async def clear(self) -> None:
        """Places of runs that have ended are free, also if whoever ended them could not say so."""
        lane, _ = await self._ledger.lane()
        gone = set()
        for key in lane.running:
            job, _, slot = key.partition(".")
            known = await self._ledger.run(job, slot)
            if known is None or known[0].status in FINAL or known[0].status == "retrying":
                gone.add(key)
        if gone:
            await self.leave(gone)
