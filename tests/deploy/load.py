"""Work that a deployment is given while something happens to it, and the ledger of what ran."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.chaos.api import Api
from tests.deploy.asking import ask, count, told
from tests.deploy.deployment import HOME, RECOVERY_S, Deployment

STEPS = 3
PATIENCE_S = 180.0  # with a gateway that is replaced, on a machine that has other things to do


class Load:
    """Sessions that are begun one after the other until told to stop; each notes its steps in a ledger.

    Args:
        name: of the ledger, and the beginning of the names of the sessions.
        pause_s: between two sessions.
    """

    def __init__(self, deployment: Deployment, gateway: Api, name: str, *, pause_s: float) -> None:
        self._deployment = deployment
        self._gateway = gateway
        self._name = name
        self._pause_s = pause_s
        self._ledger = f"{HOME}/workspace/ledger-{name}"
        self._begun = asyncio.Event()
        self.sessions: list[str] = []
        self.statuses: set[str] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Have work accepted until `stop`."""
        while not stop.is_set():
            session = f"{self._name}-{len(self.sessions)}"
            steps = (f"echo {session}.{step} >> {self._ledger}; sleep 0.3" for step in range(STEPS))
            await ask(
                self._gateway, session, "\n".join(f"run: {step}" for step in steps), patience_s=PATIENCE_S
            )
            self.sessions.append(session)
            self._begun.set()
            await asyncio.sleep(self._pause_s)

    async def more(self, number: int) -> None:
        """Until so many more sessions are begun."""
        wanted = len(self.sessions) + number
        async with asyncio.timeout(PATIENCE_S):
            while len(self.sessions) < wanted:
                self._begun.clear()
                await self._begun.wait()

    async def settle(self) -> None:
        """Wait for the end of all; then `statuses` has those of their calls.

        Raises:
            AssertionError: a session did not end well, or a step ran twice or, though it is `ok`, not at all.
        """
        done = {session: await told(self._gateway, session, within_s=RECOVERY_S) for session in self.sessions}
        lines = await asyncio.to_thread(self._deployment.run_in, "tools", "cat", self._ledger)
        for session, each in done.items():
            assert each.outcomes == ["completed"], (session, each)
            assert len(each.statuses) == STEPS, (session, each)
            self.statuses |= set(each.statuses)
            for step, status in enumerate(each.statuses):
                times = count(lines, f"{session}.{step}")
                assert times == 1 if status == "ok" else times <= 1, (session, step, status, times)


@asynccontextmanager
async def loaded(deployment: Deployment, name: str, *, pause_s: float = 0.25) -> AsyncIterator[Load]:
    """Work that goes on until the block ends, and is looked at then."""
    stop = asyncio.Event()
    async with deployment.gateway() as gateway:
        load = Load(deployment, gateway, name, pause_s=pause_s)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run(stop))
            try:
                await load.more(4)
                yield load
            finally:
                stop.set()
        await load.settle()
