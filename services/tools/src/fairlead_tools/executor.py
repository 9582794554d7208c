"""An executor: claims calls, has the runner start them, and brings back the one result of each.

Whatever it does may be cut off anywhere. The claim says who may start a call, the runner's journal
whether it was started and what came of it, and the result is create-only; so the next executor,
or this one after a restart, asks these three and goes on.
"""

import asyncio
from typing import Any

import msgspec
import structlog

from fairlead_common import mutants, subjects
from fairlead_common.bus import Bus, Delivery
from fairlead_common.content import ToolOutcome, text_outcome
from fairlead_common.errors import BadMessageError, ConflictError, FairleadError, InvalidInputError
from fairlead_common.events import ToolExecutionUpdate
from fairlead_common.messages import ToolCall, ToolClaim, ToolResult
from fairlead_common.objects import Objects
from fairlead_common.pull import Job, PullConsumer
from fairlead_tools.channel import Channel, ChannelLostError, Followed
from fairlead_tools.config import ExecutorConfig
from fairlead_tools.liveness import Liveness
from fairlead_tools.results import finished
from fairlead_tools.sandbox import Sandbox
from fairlead_tools.specs import BY_NAME
from fairlead_tools.workspaces import Workspaces

log = structlog.get_logger()

PROGRESS_S = 10.0  # how often a delivery is told that work goes on; it comes again after 30 s of silence
OTHER_ALIVE_S = 2.0
RUNNER_ATTEMPTS = 3

_call = msgspec.json.Decoder(ToolCall)
_claim = msgspec.json.Decoder(ToolClaim)
_encode = msgspec.json.Encoder().encode


class Executor:
    """Serves the calls of one host together with its siblings."""

    def __init__(
        self,
        bus: Bus,
        config: ExecutorConfig,
        sandbox: Sandbox,
        workspaces: Workspaces,
        liveness: Liveness,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._bus = bus
        self._objects = Objects(bus)
        self._config = config
        self._sandbox = sandbox
        self._workspaces = workspaces
        self._liveness = liveness
        self._tasks = tasks
        self._running: dict[str, asyncio.Task[None]] = {}
        self._followed: dict[str, Followed] = {}

    @property
    def running(self) -> int:
        """How many calls are in its hands."""
        return len(self._running)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop`; commands that run then go on in their runners, for the next executor."""
        pull = PullConsumer(
            self._bus,
            subjects.TOOLS,
            subjects.tools_consumer(self._config.host),
            self._on_job,
            lambda: self._config.capacity - len(self._running),
        )
        self._pull = pull
        cancels = await self._bus.subscribe("fairlead.cancel.*", self._on_cancel)
        await self._adopt()
        await pull.run(stop)
        await cancels.unsubscribe()
        for task in list(self._running.values()):
            task.cancel()

    # -- what arrives --------------------------------------------------------

    def _on_job(self, job: Job) -> None:
        call_id = subjects.parse_tool(job.subject).call
        if call_id not in self._running:
            self._running[call_id] = self._tasks.create_task(
                self._serve(call_id, job), name=f"call-{call_id}"
            )

    def _on_cancel(self, delivery: Delivery) -> None:
        followed = self._followed.get(delivery.subject.rpartition(".")[2])
        if followed is not None:
            self._tasks.create_task(self._cancel(followed), name="cancel")

    async def _cancel(self, followed: Followed) -> None:
        try:
            await followed.send("cancel")
        except ChannelLostError:
            return  # whoever follows the call notices too

    async def _adopt(self) -> None:
        """Take up what executors of this host left behind, without waiting for redelivery."""
        for _, call_id in self._sandbox.journaled():
            subject = subjects.tool_request(self._config.host, call_id)
            record = await self._bus.last(subjects.TOOLS, subject)
            if record is None or call_id in self._running:
                continue
            log.info("call_adopted", call=call_id)
            job = Job(self._bus, subject, record.seq, 1, record.data, record.headers, reply="")
            self._on_job(job)

    # -- one call ------------------------------------------------------------

    async def _serve(self, call_id: str, job: Job) -> None:
        """From a delivery to its acknowledgement, or back into the stream."""
        try:
            async with asyncio.TaskGroup() as tasks:
                progress = tasks.create_task(self._keep(job))
                await self._settle(job)
                progress.cancel()
        except* BadMessageError as group:
            log.error("request_refused", call=call_id, error=str(group.exceptions[0]))
            await job.term("not a tool call")
        except* FairleadError as group:
            log.warning("call_delayed", call=call_id, error=str(group.exceptions[0]))
            await job.nak(1.0)
        except* Exception as group:  # noqa: BLE001 - one call must not end the others; it comes again
            log.error("call_failed", call=call_id, error=repr(group.exceptions[0]))
            await job.nak(5.0)
        except* asyncio.CancelledError:
            await job.nak(0.2)  # draining: another executor may have it at once
            raise
        finally:
            self._running.pop(call_id, None)
            self._pull.nudge()

    async def _keep(self, job: Job) -> None:
        while job.reply:
            await asyncio.sleep(PROGRESS_S)
            await job.in_progress()

    async def _settle(self, job: Job) -> None:
        try:
            call = _call.decode(await self._objects.unpack(job.data, job.headers))
        except msgspec.DecodeError as error:
            raise BadMessageError(f"{job.subject}: {error}") from error
        holder = await self._claim(call)
        if holder is None:  # the agent took it back before it started
            await job.ack()
            return
        if self._liveness.alive(holder):
            await job.nak(OTHER_ALIVE_S)
            return
        outcome = await self._outcome(call)
        if outcome is not None:
            await self._answer(call, outcome)
            await self._forget(call)
        await job.ack()

    async def _claim(self, call: ToolCall) -> str | None:
        """The executor that holds the right to start the call; None if nobody may any more."""
        claim = ToolClaim(by="executor", holder=self._config.executor)
        subject = subjects.tool_claim(self._config.host, call.call_id)
        if mutants.active("claim_with_ttl"):
            return self._config.executor
        try:
            await self._bus.create(subjects.TOOLS, subject, _encode(claim))
        except ConflictError as error:
            there = _claim.decode(error.args[1].data)
            return there.holder if there.by == "executor" else None
        return claim.holder

    async def _outcome(self, call: ToolCall) -> ToolOutcome | None:
        """What came of it, now or before; None if it was delivered already."""
        if call.name not in BY_NAME:
            known = ", ".join(BY_NAME)
            return text_outcome(
                "error", f"There is no tool {call.name!r}. Available: {known}.", is_error=True
            )
        if call.sandbox != self._sandbox.name:
            text = f"Sandbox {call.sandbox!r} is not available on host {self._config.host}."
            return text_outcome("error", text, is_error=True)
        try:
            workspace = self._workspaces.folder(call.workspace)
        except (InvalidInputError, OSError) as error:
            return text_outcome("error", f"The workspace cannot be used: {error}", is_error=True)
        for attempt in range(RUNNER_ATTEMPTS):
            try:
                channel = await self._sandbox.channel(workspace)
                with channel.follow(call.call_id) as followed:
                    self._followed[call.call_id] = followed
                    return await self._follow(call, channel, followed)
            except ChannelLostError as error:
                # A runner that starts anew knows from its journal what the dead one had begun.
                if attempt + 1 == RUNNER_ATTEMPTS:
                    raise
                log.warning("runner_lost", call=call.call_id, error=str(error))
            finally:
                self._followed.pop(call.call_id, None)
        return None

    async def _follow(self, call: ToolCall, channel: Channel, followed: Followed) -> ToolOutcome | None:
        await followed.send("call", tool=call.name, arguments=call.arguments, timeout_s=call.timeout_s)
        while True:
            frame = await followed.next()
            match frame.get("type"):
                case "output":
                    await self._show(call, frame)
                case "result":
                    outcome = await finished(frame["outcome"], followed, self._objects)
                    if outcome.status == "unknown" and mutants.active("retry_unknown"):
                        again = msgspec.structs.replace(call, call_id=f"{call.call_id}r")
                        with channel.follow(again.call_id) as repeated:
                            return await self._follow(again, channel, repeated)
                    return outcome
                case "state" if frame.get("state") == "forgotten":
                    return None
                case "error":
                    if frame.get("code") == "busy":
                        raise ChannelLostError(str(frame.get("message")))
                    text = f"The runner refused the call: {frame.get('message')}"
                    return text_outcome("error", text, is_error=True)
                case _:
                    continue

    async def _show(self, call: ToolCall, frame: dict[str, Any]) -> None:
        update = ToolExecutionUpdate(call_id=call.call_id, text=frame["text"], offset=frame["offset"])
        await self._bus.emit(subjects.event(call.session), _encode(update))

    async def _answer(self, call: ToolCall, outcome: ToolOutcome) -> None:
        result = ToolResult(
            call_id=call.call_id, token=call.token, outcome=outcome, executor=self._config.executor
        )
        payload, headers = await self._objects.pack(_encode(result))
        subject = subjects.mail(call.session, "result", call.call_id)
        log.info("tool_finished", call=call.call_id, tool=call.name, status=outcome.status)
        if mutants.active("result_overwrite"):
            await self._bus.publish(subject, payload, headers)
            return
        try:
            await self._bus.create(subjects.SESSIONS, subject, payload, headers)
        except ConflictError:
            log.info("result_was_there", call=call.call_id)

    async def _forget(self, call: ToolCall) -> None:
        """Let the runner keep only the tombstone. If that fails, the next start of an executor does it."""
        if BY_NAME.get(call.name) is None or BY_NAME[call.name].idempotent:
            return
        try:
            channel = await self._sandbox.channel(self._workspaces.folder(call.workspace))
            await channel.send({"op": "forget", "call_id": call.call_id})
        except (ChannelLostError, InvalidInputError):
            return
