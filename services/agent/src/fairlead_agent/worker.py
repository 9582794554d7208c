"""One agent worker: takes wake-ups, owns sessions for as long as they need it, and hands them over.

A wake-up is only a hint that a session has mail. It is acknowledged when the log shows that the
message it came with is consumed. At any moment this process may die: nothing here is the truth.
"""

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from fairlead_agent.catalog import Catalog
from fairlead_agent.deletion import Deletion
from fairlead_agent.grants import Grants
from fairlead_agent.loop import AgentLoop
from fairlead_agent.mailbox import Mailbox
from fairlead_agent.models.registry import Registry
from fairlead_agent.next_step import Limits
from fairlead_agent.owner import Owner
from fairlead_agent.placement import Places
from fairlead_agent.projection import Projections
from fairlead_agent.timers import drop_timers
from fairlead_agent.tool_calls import HandOverError, ToolCalls
from fairlead_agent.turn import Turn
from fairlead_agent.wire import Wire
from fairlead_common import subjects
from fairlead_common.buckets import Lease, LeaseHolder, Leases, session_lease
from fairlead_common.bus import Bus, Delivery
from fairlead_common.dead import dead_letter
from fairlead_common.entries import CustomEntry, consumed
from fairlead_common.errors import (
    BadMessageError,
    FairleadError,
    InvalidInputError,
    LaterVersionError,
    LostOwnershipError,
)
from fairlead_common.failpoints import failpoint
from fairlead_common.ids import check_id, is_id, new_id
from fairlead_common.live_config import LiveConfig
from fairlead_common.objects import Objects
from fairlead_common.pull import Job, PullConsumer
from fairlead_common.session_log.state import HANDED_OVER, SessionState

log = structlog.get_logger()

LEASE_TTL_S = float(os.environ.get("FAIRLEAD_AGENT_LEASE_S") or 4.0)
MAX_SESSIONS = 256
RESERVED = 64  # of them, for sessions that are held because of mail, and as many for those hinted at
CACHE_BYTES = 64 << 20
CACHE_SESSIONS = 1024
RELEASED_S = 30.0  # until a session is tried again whose log holds what only a later version can read
MAX_RELEASED = 10_000
FIRST_PAUSE_S = 0.05  # before mail that was not consumed is looked at again
LONGEST_PAUSE_S = 1.0
ALL = 1 << 62  # past every sequence


@dataclass(slots=True)
class Held:
    """A session that this worker serves, or tries to; `hinted`: because of a hint, not of mail."""

    hinted: bool = False
    jobs: dict[int, Job] = field(default_factory=dict)
    lease: Lease | None = None
    owner: Owner | None = None
    task: asyncio.Task[None] | None = None


class Worker:
    """Everything a session's owner needs, and the sessions that are owned."""

    def __init__(
        self,
        bus: Bus,
        config: LiveConfig,
        catalog: Catalog,
        registry: Registry,
        grants: Grants,
        projections: Projections,
        name: str,
        may_write: Callable[[int], bool],
    ) -> None:
        self._bus = bus
        self._objects = Objects(bus)
        self._config = config
        self._catalog = catalog
        self._places = Places(bus, catalog)
        self._registry = registry
        self._grants = grants
        self._projections = projections
        self._deletion = Deletion(bus, projections)
        self.name = name
        self._may_write = may_write
        self.leases = Leases(bus, LeaseHolder(name, new_id()), ttl_s=LEASE_TTL_S)
        self._held: dict[str, Held] = {}
        self._released: OrderedDict[str, float] = OrderedDict()  # session: when it may be tried again
        self._cache: OrderedDict[str, tuple[SessionState, Wire]] = OrderedDict()
        self._tasks: asyncio.TaskGroup | None = None
        self._stop = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """A part of the service: serve sessions until `stop`, then hand over what is open."""
        self._stop = stop
        pull = PullConsumer(
            self._bus,
            subjects.SESSIONS,
            subjects.AGENTS_CONSUMER,
            self._on_job,
            lambda: self._room(hinted=False),
        )
        hints = await self._bus.subscribe(subjects.WAKE, self._on_hint, queue="agents")
        try:
            async with asyncio.TaskGroup() as self._tasks:
                renewing = self._tasks.create_task(self._renew(), name="leases")
                await pull.run(stop)
                await hints.unsubscribe()
                await self._hand_over()
                renewing.cancel()
        finally:
            self._tasks = None

    async def _hand_over(self) -> None:
        for held in self._held.values():
            if held.owner is not None:
                held.owner.stopping.set()
                held.owner.changed.set()
        tasks = [held.task for held in self._held.values() if held.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    # -- hints -------------------------------------------------------------

    def _on_job(self, job: Job) -> None:
        try:
            session = check_id(subjects.parse_session(job.subject).session, "session")
        except (BadMessageError, InvalidInputError) as error:
            assert self._tasks is not None  # noqa: S101 - jobs come only while `run` runs
            self._tasks.create_task(self._bury(job, str(error)))
            return
        if session not in self._held and self._room(hinted=False) <= 0:
            assert self._tasks is not None  # noqa: S101 - as above
            self._tasks.create_task(job.nak(1.0))
            return
        held = self._hold(session)
        held.jobs[job.seq] = job

    async def _bury(self, job: Job, reason: str) -> None:
        """Mail to something that cannot be a session: keep it as a dead letter, and deliver it no more."""
        try:
            await dead_letter(self._bus, "sessions", job, reason)
        except FairleadError as error:
            log.warning("dead_letter_failed", error=str(error))
            await job.nak(5.0)
            return
        log.warning("mail_dead_lettered", seq=job.seq, reason=reason)
        await job.term(reason)

    def _on_hint(self, delivery: Delivery) -> None:
        session = delivery.data.decode("ascii", "replace")
        if self._stop.is_set() or not is_id(session) or self._rests(session):
            return
        if session in self._held or self._room(hinted=True) > 0:  # else the sweeper hints at it again
            self._hold(session, hinted=True)

    def _room(self, *, hinted: bool) -> int:
        """How many more sessions may be held for this reason: neither hints nor mail take all places."""
        alike = sum(held.hinted is hinted for held in self._held.values())
        return min(MAX_SESSIONS - len(self._held), MAX_SESSIONS - RESERVED - alike)

    def _rests(self, session: str) -> bool:
        """Whether `session` was released, and another try is not due yet."""
        until = self._released.get(session, 0.0)
        if until and until <= time.monotonic():
            del self._released[session]
            return False
        return bool(until)

    def _release(self, session: str, why: str) -> None:
        self._released[session] = time.monotonic() + RELEASED_S
        while len(self._released) > MAX_RELEASED:
            self._released.popitem(last=False)
        log.warning("session_released", session=session, why=why, again_in_s=RELEASED_S)

    def _hold(self, session: str, *, hinted: bool = False) -> Held:
        held = self._held.get(session)
        if held is None:
            held = self._held[session] = Held(hinted=hinted)
            assert self._tasks is not None  # noqa: S101 - hints come only while `run` runs
            held.task = self._tasks.create_task(self._serve(session, held), name=f"session-{session}")
        return held

    # -- one session -------------------------------------------------------

    async def _serve(self, session: str, held: Held) -> None:
        """Own the session until nothing is left to do, or let go of it."""
        pause_s = 1.0
        try:
            with structlog.contextvars.bound_contextvars(session=session):
                before, wait_s = -1, 0.0
                while (cursor := await self._own_once(session, held)) is not None:
                    again_s = min(max(FIRST_PAUSE_S, 2 * wait_s), LONGEST_PAUSE_S)
                    before, wait_s = cursor, 0.0 if cursor > before else again_s
                    await asyncio.sleep(wait_s)
        except (LostOwnershipError, HandOverError):
            pass
        except LaterVersionError as error:
            pause_s = RELEASED_S
            self._release(session, f"{error}: a later version wrote it; upgrade this worker")
        except FairleadError as error:
            log.warning("session_let_go", session=session, error=str(error))
        except Exception:  # one session must not end the others; the sweeper brings it back, counted
            log.exception("session_failed", session=session)
        finally:
            self._held.pop(session, None)
            for job in held.jobs.values():
                await job.nak(pause_s)

    async def _own_once(self, session: str, held: Held) -> int | None:
        """How far the mail is consumed, if more of it waits; None if there is nothing more to do now."""
        held.lease = await self.leases.acquire(session_lease(session))
        if held.lease is None:
            await self._ack_consumed(session, held)
            return None
        try:
            state = await self._work(session, held)
        finally:
            lease, held.lease, held.owner = held.lease, None, None
            if lease is not None:
                await self.leases.release(lease)
        await self._ack(held, state.cursor)
        if state.exists and not held.jobs:
            return None
        return state.cursor if await self._waits(session, held, state.cursor) else None

    async def _waits(self, session: str, held: Held, cursor: int) -> bool:
        """Whether mail waits behind the cursor. Hints at mail that is not stored any more are settled."""
        mail = subjects.session_mail(session)
        known = max(held.jobs, default=0)  # what comes while this is read may not be in it
        first = [r async for r in self._bus.read(subjects.SESSIONS, mail, start=cursor + 1, limit=1)]
        await self._ack(held, min(known, first[0].seq - 1) if first else known)
        return bool(first or held.jobs) and not self._stop.is_set()

    async def _work(self, session: str, held: Held) -> SessionState:
        cached = self._cache.pop(session, None)
        state, wire = cached or (SessionState(session), Wire())
        try:
            async with Owner(self._bus, self._objects, state, wire, self._may_write) as owner:
                held.owner = owner
                if self._stop.is_set():
                    owner.stopping.set()
                await self._drive(owner, held)
                if state.deleting:
                    await self._deletion.carry_out(owner)
        except HandOverError:
            log.info("session_handed_over")
            if held.lease is not None:
                await self.leases.release(held.lease)
                held.lease = None
            await self._bus.emit(subjects.WAKE, session.encode())
            raise
        if state.last_seq:
            self._remember(state, wire)
        return state

    async def _drive(self, owner: Owner, held: Held) -> None:
        calls = ToolCalls(
            owner, self._bus, self._catalog, self._places, self._config, self._grants, self.name
        )
        mailbox = Mailbox(owner, self._config, calls, self._grants, self._deletion)
        turn = Turn(owner, self._registry, self._catalog, self._places, self._config)
        loop = AgentLoop(owner, mailbox, calls, turn, self._catalog, self._config, self.name)

        async def pump() -> None:
            while True:
                if await owner.tail.wait(1.0):
                    await mailbox.drain()
                    await self._ack(held, owner.state.cursor)
                self._interrupt_what_must_end(owner, turn)

        known = frozenset(owner.state.settled_approvals)  # by an earlier owner

        async def project() -> None:
            if owner.state.exists:  # a late hint may be about a session that was deleted
                settled = owner.state.settled_approvals - known
                await drop_timers(self._bus, owner.session, [f"approval-{each}" for each in settled])
                self._projections.show(owner.state)

        failure: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                pumping = tasks.create_task(pump(), name="mail")
                try:
                    await loop.run(project)
                except HandOverError as error:
                    await owner.append(CustomEntry(id=new_id(), name=HANDED_OVER))
                    failure = error
                except LostOwnershipError as error:
                    failure = error
                pumping.cancel()
        except* FairleadError as group:
            failure = group.exceptions[0]
        if failure is not None:
            if isinstance(failure, LostOwnershipError):
                log.info("ownership_lost", why=str(failure))
            raise failure

    def _interrupt_what_must_end(self, owner: Owner, turn: Turn) -> None:
        """Stop the reply and the tool calls of a run that is aborted or over its time."""
        state, profile = owner.state, self._config.current.agent(owner.state.agent)
        run = state.run
        if run is None:
            return
        late = profile is not None and Limits.of(profile).is_out_of_time(run, time.time_ns() // 1_000_000)
        if late or run.aborting or state.deleting:
            owner.changed.set()
            turn.interrupt()

    def _remember(self, state: SessionState, wire: Wire) -> None:
        self._cache[state.session] = state, wire
        total = sum(cached.weight for cached, _ in self._cache.values())
        while self._cache and (total > CACHE_BYTES or len(self._cache) > CACHE_SESSIONS):
            _, (dropped, _) = self._cache.popitem(last=False)
            total -= dropped.weight

    # -- acknowledgements and leases -----------------------------------------

    async def _ack(self, held: Held, cursor: int) -> None:
        for seq in [seq for seq in held.jobs if seq <= cursor]:
            failpoint("agent.ack.before")
            await held.jobs.pop(seq).ack()
            failpoint("agent.ack.after")

    async def _ack_consumed(self, session: str, held: Held) -> None:
        """Somebody else owns the session: settle the hints whose mail it has consumed."""
        last = await self._bus.last(subjects.SESSIONS, subjects.session_log(session))
        cursor = consumed(last.headers) if last else 0
        await self._ack(held, cursor)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE_TTL_S / 3)
            await asyncio.gather(*(self._renew_one(held) for held in list(self._held.values())))

    async def _renew_one(self, held: Held) -> None:
        lease = held.lease
        if lease is None:
            return
        try:
            renewed = await self.leases.renew(lease)
        except FairleadError:  # the bus is away; the fence keeps us safe, the next round tries again
            return
        if held.lease is not lease:  # released meanwhile, or given to the next attempt
            return
        held.lease = renewed
        if renewed is None and held.task is not None:
            log.info("lease_lost")
            held.task.cancel()
