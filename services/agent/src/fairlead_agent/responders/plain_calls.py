"""Calls a model for the gateway, which has no keys: one request without tools, session or memory."""

import asyncio
from contextlib import AbstractAsyncContextManager
from itertools import takewhile
from typing import Final

import msgspec
import structlog

from fairlead_agent.budget.ledger import Ledgers, today
from fairlead_agent.budget.payment import Payment
from fairlead_agent.budget.plain_spend import Spender, spend_plain
from fairlead_agent.budget.shared import Payers, shared_budgets
from fairlead_agent.models.interface import ModelError, ModelRequest
from fairlead_agent.models.registry import Registry
from fairlead_agent.turn.model_calls import ModelCalls
from fairlead_agent.turn.streamed_reply import readable
from fairlead_common.bus import Bus
from fairlead_common.errors import InvalidInputError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.content import AssistantMessage, Message, TextBlock, UserMessage
from fairlead_common.protocol.plain_calls import PlainAnswer, PlainCall, PlainMessage
from fairlead_common.received import Delivery
from fairlead_common.service.known_users import KnownUsers
from fairlead_common.service.live_config import LiveConfig
from fairlead_common.undecodable import UNDECODABLE

log = structlog.get_logger()

AT_ONCE: Final = 16  # in one process; more wait
MAX_WAITING: Final = 256
STOP_PATIENCE_S: Final = 3.0
QUEUE: Final = "agents"

_decoder = msgspec.json.Decoder(PlainCall)


class PlainCalls:
    """A part of every agent worker; one of them answers each request."""

    def __init__(self, bus: Bus, config: LiveConfig, registry: Registry, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._payers = Payers(KnownUsers(bus))
        self._bus = bus
        self._config = config
        self._registry = registry
        self._room = asyncio.Semaphore(AT_ONCE)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._replies: dict[str, list[str]] = {}  # of each call: it may be asked for more than once

    async def run(self, stop: asyncio.Event) -> None:
        """Answer until `stop`; calls under way get a few seconds more."""
        answering: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as tasks:

            def begin(delivery: Delivery) -> None:
                if not delivery.reply or len(answering) >= MAX_WAITING:
                    return  # who asked hears nothing, and gives up
                task = tasks.create_task(self._answer(delivery), name="plain-call")
                answering.add(task)
                task.add_done_callback(answering.discard)

            asked = await self._bus.subscribe(subjects.MODEL_ASK, begin, queue=QUEUE)
            cancelled = await self._bus.subscribe(subjects.MODEL_CANCEL, self._cancel)
            await stop.wait()
            await asked.unsubscribe()
            if answering:
                await asyncio.wait(answering, timeout=STOP_PATIENCE_S)
            await cancelled.unsubscribe()
            for task in answering:
                task.cancel()

    def _cancel(self, delivery: Delivery) -> None:
        task = self._running.get(delivery.data.decode("ascii", "replace"))
        if task is not None:
            task.cancel()

    async def _answer(self, delivery: Delivery) -> None:
        try:
            call = _decoder.decode(delivery.data)
        except UNDECODABLE as error:
            text = f"the request cannot be read: {error}"
            refusal = PlainAnswer(error=text, error_code="input_refused")
            await self._bus.emit(delivery.reply, msgspec.json.encode(refusal))
            return
        if call.id in self._replies:
            self._replies[call.id].append(delivery.reply)
            return
        self._replies[call.id] = [delivery.reply]
        try:
            answer = msgspec.json.encode(await self._within_limits(call))
            for reply in self._replies[call.id]:
                await self._bus.emit(reply, answer)
        finally:
            del self._replies[call.id]

    async def _within_limits(self, call: PlainCall) -> PlainAnswer:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - each call has one
        self._running[call.id] = task
        try:
            async with asyncio.timeout(call.timeout_s), self._room:
                return await self._call(call)
        except ModelError as error:
            return PlainAnswer(error=readable(str(error)), error_code=error.code)
        except InvalidInputError as error:
            return PlainAnswer(error=readable(str(error)), error_code="model_request_refused")
        except TimeoutError:
            text = f"the model did not answer within {call.timeout_s:g} s"
            return PlainAnswer(error=text, error_code="model_unavailable")
        except Exception as error:
            log.exception("plain_call_failed", error=repr(error))
            return PlainAnswer(error="internal error; see the log of the agent service")
        finally:
            del self._running[call.id]

    async def _call(self, call: PlainCall) -> PlainAnswer:
        profile = self._config.current.agent(call.agent)
        if profile is None:
            raise InvalidInputError("agent", f"{call.agent!r} is not configured")
        config = self._config.current
        wanted = config.gateway.openai.task_model or profile.model
        system, messages = _conversation(call.messages)
        request = ModelRequest(
            model="",
            messages=messages,
            system=system,
            temperature=profile.temperature,
            max_output_tokens=call.max_output_tokens or profile.max_output_tokens,
        )

        payer = await self._payers.find(call.user, "")
        budgets = shared_budgets(call.agent, profile.budget, payer, today())
        spender = Spender(call.agent, call.user, budgets)

        def pay(name: str, asked: ModelRequest) -> AbstractAsyncContextManager[Payment]:
            return spend_plain(self._ledgers, spender, name, self._registry.facts(name), asked)

        calls = ModelCalls(self._registry, pay, f"plain {call.agent}", config.models.retries)
        models = (wanted, profile.model, *profile.fallbacks)
        reply = await calls.first(models, lambda _: request, call.timeout_s)
        stop = reply.finish.stop_reason
        return PlainAnswer(text=reply.text, model=reply.model, stop_reason=stop, usage=reply.usage)


def _conversation(messages: list[PlainMessage]) -> tuple[str, list[Message]]:
    """System prompt and messages. Where the system speaks later, which providers refuse, the user does."""
    begin = list(takewhile(lambda message: message.role == "system", messages))
    rest: list[Message] = []
    for message in messages[len(begin) :]:
        text = TextBlock(text=message.content)
        if message.role == "assistant":
            rest.append(AssistantMessage(content=[text], model=""))
        else:
            rest.append(UserMessage(content=[text]))
    return "\n\n".join(message.content for message in begin), rest
