"""Answers on their way out: kept until they are delivered or given up. A delivery never runs the model again.

What is delivered may be a duplicate when an acknowledgement was lost: it carries the number of the attempt
and a key that is the same for all attempts.
"""

import asyncio

import msgspec
import structlog

from fairlead_common import subjects
from fairlead_common.buckets import Bucket, is_marker
from fairlead_common.bus import Bus
from fairlead_common.cron.jobs import AgentTurn, Job
from fairlead_common.cron.runs import DeliveryState, RunEntry
from fairlead_common.errors import ConflictError, FairleadError, NotFoundError
from fairlead_common.objects import Objects
from fairlead_scheduler.clock import Clock
from fairlead_scheduler.delivery.channels import Channels, RefusedError
from fairlead_scheduler.delivery.message import DeliveryMessage
from fairlead_scheduler.jobs.job_store import token
from fairlead_scheduler.leader import Leader
from fairlead_scheduler.runs.run_store import RunStore
from fairlead_scheduler.runs.run_watcher import Ending
from fairlead_scheduler.session_mail import SessionMail

log = structlog.get_logger()

FIRST_PAUSE_MS = 1000
LONGEST_PAUSE_MS = 600_000
AT_ONCE = 8
POLL_S = 2.0
MAX_TEXT_CHARS = 200_000

_letter = msgspec.json.Decoder(DeliveryMessage)


class Outbox:
    """A part of every scheduler; the one that leads sends."""

    def __init__(
        self, bus: Bus, ledger: RunStore, post: SessionMail, channels: Channels, lead: Leader, clock: Clock
    ) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, subjects.BUCKET_RUNS)
        self._objects = Objects(bus)
        self._ledger = ledger
        self._post = post
        self._channels = channels
        self._lead = lead
        self._clock = clock
        self._look = asyncio.Event()
        self.pending = 0

    async def accept(self, run: RunEntry, job: Job, payload: AgentTurn, ending: Ending) -> DeliveryState:
        """Keep what is to be delivered, before the run is ended; `send_soon` then lets it go."""
        letter = DeliveryMessage(
            job_id=run.job_id,
            slot=run.slot,
            name=job.name,
            channel=payload.channel,
            to=None if payload.channel == "last" else payload.to,
            session=job.session,
            text=ending.text[:MAX_TEXT_CHARS],
            untrusted=ending.untrusted,
            created_at_ms=self._clock.now_ms(),
            held=True,
        )
        try:
            await self._bucket.create(_key(run), msgspec.json.encode(letter), point="scheduler.letter")
        except ConflictError:
            log.info("letter_kept_before", job=run.job_id)
        return DeliveryState(channel=payload.channel)

    async def send_soon(self, run: RunEntry) -> None:
        """The run has ended: its letter may go. Harmless to repeat."""
        record = await self._bucket.get(_key(run))
        if record is None:
            return
        letter = _letter.decode(record.data)
        if letter.held:
            await self._bucket.update(
                _key(run), msgspec.json.encode(msgspec.structs.replace(letter, held=False)), record.seq
            )
        self._look.set()

    def look(self) -> None:
        """Look again now."""
        self._look.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send what is due until `stop`, whenever this scheduler leads."""
        while not stop.is_set():
            self._look.clear()
            pause_s = POLL_S
            try:
                if self._lead.term:
                    pause_s = await self._send_due()
            except (FairleadError, msgspec.DecodeError) as error:
                log.warning("outbox_failed", error=str(error))
            try:
                async with asyncio.timeout(pause_s):
                    await self._look.wait()
            except TimeoutError:
                continue
        await self._channels.close()

    async def _send_due(self) -> float:
        """Seconds until there may be more to send."""
        waiting: list[tuple[DeliveryMessage, int]] = []
        async for record in self._bus.read(self._bucket.stream, f"$KV.{self._bucket.name}.out.>"):
            if is_marker(record):
                continue
            letter = _letter.decode(record.data)
            if not letter.held:
                waiting.append((letter, record.seq))
        self.pending = len(waiting)
        now_ms = self._clock.now_ms()
        due = [each for each in waiting if each[0].not_before_ms <= now_ms][:AT_ONCE]
        await asyncio.gather(*(self._send(letter, revision) for letter, revision in due))
        later = [letter.not_before_ms - now_ms for letter, _ in waiting if letter.not_before_ms > now_ms]
        if len(due) == AT_ONCE:
            return 0.0
        return max(0.05, min([POLL_S, *(span / 1000 for span in later)]))

    async def _send(self, letter: DeliveryMessage, revision: int) -> None:
        """One attempt. It is counted before it is made, so that the number on it is never too low.

        Where it goes is written with the count: the session used last may be another one the next time.
        """
        if await self._is_settled(letter):
            await self._drop(letter)
            return
        letter = await self._channels.addressed(letter)
        attempt = letter.attempts + 1
        pause_ms = min(FIRST_PAUSE_MS * 2 ** min(attempt - 1, 20), LONGEST_PAUSE_MS)
        letter = msgspec.structs.replace(
            letter, attempts=attempt, not_before_ms=self._clock.now_ms() + pause_ms
        )
        try:
            revision = await self._bucket.update(
                letter.key, msgspec.json.encode(letter), revision, point="scheduler.attempt"
            )
        except ConflictError:
            return  # another scheduler sends it
        try:
            await self._channels.send(letter)
        except RefusedError as error:
            await self._failed(letter, str(error), final=True)
        except (FairleadError, OSError, TimeoutError) as error:
            limit = self._channels.max_attempts(letter)
            await self._failed(letter, str(error) or type(error).__name__, final=attempt >= limit)
        else:
            log.info(
                "delivered", job=letter.job_id, slot=letter.slot, channel=letter.channel, attempt=attempt
            )
            await self._note(letter, DeliveryState(channel=letter.channel, status="sent", attempts=attempt))
            await self._drop(letter)

    async def _drop(self, letter: DeliveryMessage) -> None:
        """The letter is settled. Its marker stays as long as the history, which says that it was sent."""
        await self._bucket.delete(letter.key, ttl_s=self._ledger.history_s)

    async def _is_settled(self, letter: DeliveryMessage) -> bool:
        """Whether it was delivered or given up before: a letter may come back in a crash of nats-server."""
        known = await self._ledger.run(letter.job_id, letter.slot)
        if (
            known is None
        ):  # its run is forgotten, as that of a letter which came back after its marker expired
            return self._clock.now_ms() - letter.created_at_ms > self._ledger.history_s * 1000
        delivery = known[0].delivery
        return delivery is not None and delivery.status != "pending"

    async def _failed(self, letter: DeliveryMessage, error: str, *, final: bool) -> None:
        log.warning(
            "delivery_failed", job=letter.job_id, slot=letter.slot, attempt=letter.attempts, final=final
        )
        status = "failed" if final else "pending"
        state = DeliveryState(
            channel=letter.channel,
            status=status,  # type: ignore[arg-type] # one of both
            attempts=letter.attempts,
            error=error[:500],
        )
        if final:  # said first: a letter whose failure is in the history is settled
            text = f"The answer of '{letter.name}' could not be delivered ({letter.channel}): {error[:300]}"
            key = token("undelivered", letter.job_id, letter.slot)
            source = f"cron:{letter.job_id}"
            await self._post.system(letter.session, key, text, source, untrusted=letter.untrusted)
        await self._note(letter, state)
        if final:
            await self._drop(letter)

    async def _note(self, letter: DeliveryMessage, state: DeliveryState) -> None:
        """Say in the history how far it got."""
        for _ in range(10):
            known = await self._ledger.run(letter.job_id, letter.slot)
            if known is None:
                return
            try:
                await self._ledger.change(msgspec.structs.replace(known[0], delivery=state), known[1])
            except ConflictError:
                continue
            except NotFoundError:
                return
            return


def _key(run: RunEntry) -> str:
    return f"out.{run.job_id}.{run.slot}"
