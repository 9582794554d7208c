"""Agent processes ask each other about sessions: `fairlead.owner.<boot>`, one subject for each process.

A wake-up that reaches a process while another owns the session is settled by asking that one. A lease tells
only who owned it a moment ago; what its holder answers now decides, and a lease of one that is gone is taken.
"""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec

from fairlead_common import subjects
from fairlead_common.buckets import Leases, session_lease
from fairlead_common.bus import Bus, Delivery
from fairlead_common.errors import BusUnavailableError, FairleadError, NotFoundError
from fairlead_common.messages import OwnerAnswer, OwnerQuestion

ANSWER_S = 0.05
SILENT_S = 2.0  # after so long without an answer, a holder is asked once more, and then counts as gone
LAST_ANSWER_S = 1.0

_question = msgspec.json.Decoder(OwnerQuestion)
_answer = msgspec.json.Decoder(OwnerAnswer)


class Owners:
    """The other agent processes, and this one's answers to them.

    Args:
        answer: of this process to a question about a session that it may own.
    """

    def __init__(self, bus: Bus, leases: Leases, answer: Callable[[OwnerQuestion], OwnerAnswer]) -> None:
        self._bus = bus
        self._leases = leases
        self._answer = answer
        self._silent: dict[str, float] = {}  # by process: since when it has not answered

    async def run(self, stop: asyncio.Event) -> None:
        """A part of the service: answer until `stop`."""
        asked: asyncio.Queue[Delivery] = asyncio.Queue()
        listening = await self._bus.subscribe(subjects.owner(self._leases.boot), asked.put_nowait)

        async def reply() -> None:
            while True:
                delivery = await asked.get()
                with contextlib.suppress(FairleadError, msgspec.DecodeError):  # the asker asks again
                    answer = self._answer(_question.decode(delivery.data))
                    await self._bus.emit(delivery.reply, msgspec.json.encode(answer))

        async with asyncio.TaskGroup() as tasks:
            replying = tasks.create_task(reply())
            await stop.wait()
            replying.cancel()
        await listening.unsubscribe()

    async def ask(self, boot: str, session: str, seq: int) -> OwnerAnswer | None:
        """What the process answers; None: nothing, but it may only be slow. One that is gone owns nothing."""
        question = msgspec.json.encode(OwnerQuestion(session=session, seq=seq))
        now = asyncio.get_running_loop().time()
        long_silent = boot in self._silent and now - self._silent[boot] > SILENT_S
        timeout_s = LAST_ANSWER_S if long_silent else ANSWER_S  # a busy process is not a dead one
        try:
            reply = await self._bus.request(subjects.owner(boot), question, timeout_s=timeout_s)
            answer = _answer.decode(reply.data)
        except NotFoundError:  # no such process is connected
            self._silent.pop(boot, None)
            return OwnerAnswer()
        except (BusUnavailableError, msgspec.DecodeError):
            self._silent.setdefault(boot, now)
            return OwnerAnswer() if long_silent and self._bus.connected else None
        self._silent.pop(boot, None)
        return answer

    async def is_owned(self, session: str) -> bool:
        """Whether a process that lives, and may be this one, holds the lease of the session."""
        holder = await self._leases.holder(session_lease(session))
        if holder is None or self._leases.has_replaced(holder):
            return False
        if holder.boot == self._leases.boot or not holder.answers:
            return True
        answer = await self.ask(holder.boot, session, 0)
        return answer is None or answer.owned
