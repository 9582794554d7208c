"""The answer of a chat completion: followed in the session, sent whole or as it comes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import structlog
from starlette.types import Receive, Scope, Send

from fairlead_common.bus.tail import Tail, TailSource
from fairlead_common.errors import BadMessageError, BusUnavailableError, FairleadError, LaterVersionError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.entries import LaterEntry
from fairlead_common.protocol.events import decode_event
from fairlead_common.protocol.messages import Abort
from fairlead_common.received import Record
from fairlead_gateway.events.event_stream import TAKE_WITHIN_S
from fairlead_gateway.gateway import Gateway, answering
from fairlead_gateway.http import sse
from fairlead_gateway.http.problems import Problem, problem_of
from fairlead_gateway.openai_api.accepted import AcceptedCalls, Visit
from fairlead_gateway.openai_api.answer import AnswerPiece, ChatAnswer
from fairlead_gateway.openai_api.format import ChatFormat, CompletionOptions, error_chunk
from fairlead_gateway.sessions.prompts import send_abort
from fairlead_gateway.sessions.transcript import placed

log = structlog.get_logger()

GRACE_S: Final = (
    5.0  # beside its own pause, for a client that lost its connection and sends the request again
)

_LOG, _EVENT = 0, 1


class AcceptedCompletion(NamedTuple):
    """One accepted chat completion.

    Fields:
        seq: of the stored prompt. event_seq: last live event before it.
        own: the session was made for this call, and no one else knows it.
        detached: the run goes on when the client leaves.
        calls, visit: where the requests for this answer are recorded, and which of them this is; without a
            visit no other request can find this call.
        backoff_s: how long the client waits before it sends the request again.
    """

    gateway: Gateway
    session: str
    wanted: CompletionOptions
    key: str
    sender: str
    seq: int
    event_seq: int
    own: bool
    detached: bool
    calls: AcceptedCalls
    visit: Visit | None = None
    backoff_s: float = 0.0


class Completion:
    """The answer to the client: an ASGI application."""

    def __init__(self, call: AcceptedCompletion) -> None:
        self._call = call
        self._answer = ChatAnswer(call.seq)
        self._pieces: list[AnswerPiece] = []  # read, and not yet written
        self._kept: list[AnswerPiece] = []  # for an answer that is sent whole
        self._abort: Callable[[], None] = lambda: None
        self._sent_at = 0.0
        self._form = ChatFormat(call.key, call.wanted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        call = self._call
        self._abort = scope.get("fairlead.abort", self._abort)
        if call.wanted.stream:
            done = await self._stream(receive, send)
        else:
            done = await call.gateway.streams.run(self._follow(self._keep), receive)
            if done or call.gateway.streams.draining:
                await self._whole(done, scope, receive, send)
        if done:
            await self._end()
        elif not call.gateway.streams.draining:
            await self._left_alone()

    # -- following the session ---------------------------------------------------

    async def _follow(self, write: Callable[[list[AnswerPiece]], Awaitable[None]]) -> None:
        """Read until the answer is complete; `write` gets what is new, or nothing after some silence."""
        call = self._call
        sources = [
            TailSource(subjects.SESSIONS, subjects.session_log(call.session), call.seq + 1, chained=True),
            TailSource(
                subjects.EVENTS, subjects.event(call.session), call.event_seq + 1, chained=True, lossy=True
            ),
        ]
        routes = {subjects.live(call.session, "log"): _LOG, subjects.live(call.session, "event"): _EVENT}
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        async with Tail(call.gateway.bus, tuple(routes), sources, routes.get) as tail:
            while not self._answer.done:
                for source, record in await self._take(tail):
                    self._pieces += await self._read(source, record)
                if self._pieces or loop.time() - self._sent_at >= sse.KEEP_ALIVE_S:
                    pieces, self._pieces = self._pieces, []
                    await write(pieces)
                    self._sent_at = loop.time()
                if loop.time() - looked_at >= sse.KEEP_ALIVE_S:
                    looked_at = loop.time()
                    await self._check_session()
                if not self._answer.done and not tail.has_records:
                    await tail.wait(max(0.01, self._sent_at + sse.KEEP_ALIVE_S - loop.time()))

    async def _take(self, tail: Tail) -> list[tuple[int, Record]]:
        try:
            async with asyncio.timeout(TAKE_WITHIN_S):
                return await tail.take()
        except (BusUnavailableError, TimeoutError):
            await asyncio.sleep(0.1)
            return []

    async def _read(self, source: int, record: Record) -> list[AnswerPiece]:
        try:
            if source == _EVENT:
                return list(self._answer.live(decode_event(record.data)))
            pieces: list[AnswerPiece] = []
            for each in await placed(self._call.gateway.objects, record):
                entry = each.read()
                if isinstance(entry, LaterEntry):
                    raise LaterVersionError(f"log entry {each.place} ({entry.kind}): {entry.problem}")
                pieces += self._answer.entry(record.seq, entry)
            return pieces
        except LaterVersionError as error:
            log.warning("session_of_later_version", session=self._call.session, error=str(error))
            self._answer.problem = problem_of(error)
            return []
        except BadMessageError as error:
            log.warning("record_ignored", session=self._call.session, error=str(error))
            return []

    async def _check_session(self) -> None:
        try:
            async with asyncio.timeout(TAKE_WITHIN_S):
                gone = not await self._call.gateway.exists(self._call.session)
        except (BusUnavailableError, TimeoutError):
            return
        if gone:
            self._answer.problem = Problem(
                404, "the session was deleted", headers={"x-should-retry": "false"}
            )

    # -- answering whole -----------------------------------------------------------

    async def _keep(self, pieces: list[AnswerPiece]) -> None:
        self._kept += pieces

    async def _whole(self, done: bool, scope: Scope, receive: Receive, send: Send) -> None:
        call, answer = self._call, self._answer
        problem = answer.problem if done else _draining(call)
        if problem is not None:
            problem.headers["X-Fairlead-Session"] = call.session
            await problem.response(scope["path"])(scope, receive, send)
            return
        headers = {"X-Fairlead-Session": call.session}
        whole = self._form.whole(self._kept, answer.finish, answer.usage, headers)
        await whole(scope, receive, send)

    # -- answering as it comes -------------------------------------------------------

    async def _stream(self, receive: Receive, send: Send) -> bool:
        write = await sse.start(send, (b"x-fairlead-session", self._call.session.encode()))

        async def write_pieces(pieces: list[AnswerPiece]) -> None:
            await write(b"".join(map(self._form.chunk, pieces)) or b": alive\n\n")

        async def work() -> None:
            try:
                await write(self._form.first_chunk())
                self._sent_at = asyncio.get_running_loop().time()
                await self._follow(write_pieces)
                await write(self._last_chunks())
            except TimeoutError:
                log.info("client_too_slow", session=self._call.session)
                self._abort()
                raise asyncio.CancelledError from None  # the client is as good as gone

        done = await self._call.gateway.streams.run(work(), receive)
        if not done and self._call.gateway.streams.draining:
            await write(error_chunk(_draining(self._call)))
        await sse.end(send)
        return done

    def _last_chunks(self) -> bytes:
        answer = self._answer
        if answer.problem is not None:
            return error_chunk(answer.problem)
        return self._form.last_chunks(answer.finish, answer.usage)

    # -- when no one reads any more ----------------------------------------------------

    async def _left_alone(self) -> None:
        """The client left: stop its run, unless it said that it would, or someone else's would be hit.

        A client that sends requests again has a moment to do so.
        """
        call = self._call
        if call.detached and not call.own:
            return
        item = self._answer.item
        if not (call.own or self._answer.begun or item is not None):
            return  # it waits unseen behind another run
        try:
            if call.visit is not None and await self._comes_back(call.visit):
                return
            wish = Abort(reason="the client closed the connection", item=item, sender=call.sender)
            async with answering():
                seen = await call.gateway.seen(call.session) or {}
                await send_abort(call.gateway, call.session, wish, seen)
        except (FairleadError, TimeoutError) as error:
            log.warning("abort_failed", session=call.session, error=str(error))
            return
        await self._end()

    async def _comes_back(self, visit: Visit) -> bool:
        """Whether the answer has a reader again within the grace; true also if the gateway ends meanwhile."""
        call = self._call
        if await call.gateway.streams.drained_within(GRACE_S + call.backoff_s):
            return True
        async with answering():
            return await call.calls.was_taken_up(visit)

    async def _end(self) -> None:
        """Record that no one has to come back for this answer."""
        call = self._call
        if call.visit is None:
            return
        try:
            async with answering():
                await call.calls.end(call.visit)
        except (FairleadError, TimeoutError) as error:
            log.warning("call_not_ended", session=call.session, error=str(error))


def _draining(call: AcceptedCompletion) -> Problem:
    headers = {"Retry-After": "2"}
    if call.visit is None:
        headers["x-should-retry"] = "false"
    return Problem(
        503,
        f"this gateway is shutting down; the run continues in session {call.session}",
        code="shutting_down",
        headers=headers,
    )
