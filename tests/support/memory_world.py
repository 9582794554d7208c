"""A whole agent service in memory: bus, model and executors in one process, on time that jumps.

Mail goes in, entries of the log come out; everything between is the code that runs in production. A service
can be killed, stopped and let go on at any message that it sends.
"""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar, cast

import msgspec
import pytest

from fairlead_agent import main as agent_main
from fairlead_agent.models.registry import Registry
from fairlead_common.bus.pull_consumer import StreamMessage
from fairlead_common.bus.streams import TOOLS_WAIT_S, ensure_consumer
from fairlead_common.errors import BusUnavailableError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.client_tools import ClientResult
from fairlead_common.protocol.content import (
    AssistantMessage,
    TextBlock,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    text_outcome,
)
from fairlead_common.protocol.entries import (
    ApprovalRequestEntry,
    CustomEntry,
    EpochEntry,
    MessageEntry,
    RunEndEntry,
    RunStartEntry,
)
from fairlead_common.protocol.entries import Entry as LogEntry
from fairlead_common.protocol.ids import new_id
from fairlead_common.protocol.messages import Decision, DecisionKind
from fairlead_common.protocol.settings_entries import ToolListEntry
from fairlead_common.session_log.state import SessionState
from tests.support.agent_world import HOST, World
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.memory_model import MemoryModel
from tests.support.outcomes import text_of

HEARTBEAT_S = 20.0

W = TypeVar("W", bound="MemoryWorld")


class Agent:
    """An agent service on a connection of its own."""

    def __init__(self, server: FakeServer, bus: FakeBus, name: str) -> None:
        self.bus = bus
        self.name = name
        self.stop = asyncio.Event()
        self._server = server
        self._running: list[asyncio.Task[object]] = []

    async def start(self) -> None:
        for part in await agent_main.setup(self.bus):
            self._running.append(asyncio.ensure_future(part(self.stop)))

    async def drain(self) -> None:
        """As by SIGTERM."""
        self.stop.set()
        if self._running:
            await asyncio.wait(self._running, timeout=10)

    async def kill(self) -> None:
        """As by kill -9: nothing that it says from here on reaches anybody."""
        self.die()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=10)
        self._running = []

    def die(self) -> None:
        """The first half of `kill`, to be called from inside: its messages reach no one any more."""
        self._server.bury(self.bus)

    async def close(self) -> None:
        """The end of the test."""
        await self.drain()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.bus.close()


class MemoryWorld(World):
    """The world of `agent_world.py` without a process."""

    def __init__(self, server: FakeServer, bus: FakeBus, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mind = MemoryModel()
        super().__init__(bus, cast(Any, self.mind))
        self.server = server
        self.beats = True  # whether the executor is heard
        self._patch = monkeypatch
        self._agents: list[Agent] = []
        self._home = tempfile.TemporaryDirectory(prefix="fairlead-home-")

    async def agent(self, name: str = "agent-1", settings: dict[str, object] | None = None) -> Agent:
        """Start an agent service."""
        made = Agent(self.server, await self.server.connect(name), name)
        defaults = {"agents.main.mode": "allow-all", "models.default": "openai/scripted"}
        overrides = msgspec.json.encode({**defaults, **(settings or {})}).decode()
        self._patch.setenv("FAIRLEAD_WORKER", name)
        self._patch.setenv("FAIRLEAD_HOME", self._home.name)
        self._patch.setenv("FAIRLEAD_OVERRIDES", overrides)
        self._agents.append(made)
        await made.start()
        return made

    async def close(self) -> None:
        for agent in self._agents:
            await agent.close()
        self._home.cleanup()

    async def beat(self) -> None:
        """The executor is there."""
        while True:
            if self.beats:
                with contextlib.suppress(BusUnavailableError):  # the next one comes
                    await self.heartbeat()
            await asyncio.sleep(HEARTBEAT_S)

    async def take(self, message: StreamMessage) -> None:
        with contextlib.suppress(BusUnavailableError):  # the request comes again
            await super().take(message)

    async def tool_says(self, words: str) -> ToolOutcome:
        """What a tool that went well gives."""
        return text_outcome("ok", words, is_error=False)

    # -- mail ----------------------------------------------------------------

    async def mail(self, session: str, kind: str, body: object, key: str | None = None) -> int:
        """Any mail, create-only."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.bus.create(s.SESSIONS, s.mail(session, kind, key or new_id()), data)

    async def notice(self, session: str, name: str, body: object = None) -> int:
        return await self.mail(session, "notice", body, name)

    async def decide(
        self, session: str, request: ApprovalRequestEntry, decision: DecisionKind, **fields: Any
    ) -> None:
        """What a person says to an approval request."""
        hashed = fields.pop("shown_hash", request.shown_hash)
        body = Decision(approval_id=request.id, decision=decision, shown_hash=hashed, **fields)
        await self.mail(session, "approval", body, request.id)

    async def client_says(self, session: str, call: str, words: str, **fields: Any) -> int:
        """What a client says came of a call of its tool."""
        body = ClientResult(call_id=call, text=words, **fields)
        return await self.mail(session, "clientresult", body, call)

    async def open_calls(self, session: str, count: int = 1) -> list[str]:
        """The calls that wait for the client, once the session was parked for it so often."""
        log = await self.wait_for(
            session, lambda log: _parks(log) >= count and isinstance(log[-1], RunEndEntry)
        )
        state = SessionState(session)
        for seq, entry in enumerate(log, 1):
            state.apply(entry, seq)
        return [call.call_id for call in state.client_calls]

    # -- what came of it -------------------------------------------------------

    async def wait_for(
        self, session: str, condition: Callable[[list[LogEntry]], object], timeout_s: float = 60.0
    ) -> list[LogEntry]:
        """See `World.wait_for`; the seconds are virtual, and the log is looked at less and less often."""
        log: list[LogEntry] = []
        end, pause_s = asyncio.get_running_loop().time() + timeout_s, 0.01
        while not condition(log := await self.log(session)):
            if asyncio.get_running_loop().time() > end:
                pytest.fail("never happened; the log is:\n" + "\n".join(map(str, log)))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)
        return log

    async def approval(self, session: str) -> ApprovalRequestEntry:
        """The newest approval request, once the session is parked."""
        log = await self.wait_for(
            session, lambda log: log and isinstance(log[-1], RunEndEntry) and _asked(log)
        )
        return _asked(log)[-1]

    async def results(self, session: str) -> list[tuple[str, str]]:
        """Status and text of each result of a tool that the session got."""
        outcomes = [m.outcome for m in await self.messages(session) if isinstance(m, ToolResultMessage)]
        return [(each.status, text_of(each)) for each in outcomes]

    async def story(self, session: str) -> list[str]:
        """The log in short words; without epochs, which only tell who wrote it."""
        return [words for entry in await self.log(session) if (words := _words(entry))]

    async def settled(self, session: str, count: int = 1, timeout_s: float = 120.0) -> list[str]:
        """The story, once `count` runs have ended and all mail is consumed."""
        await self.run_end(session, count, timeout_s)
        mail = await self.bus.last(s.SESSIONS, s.session_mail(session))
        seq = mail.seq if mail else 0
        await self.wait_for(session, lambda log: log[-1].cursor >= seq, timeout_s)
        return await self.story(session)


def _parks(log: list[LogEntry]) -> int:
    return sum(isinstance(entry, RunEndEntry) and entry.outcome == "requires_action" for entry in log)


def _asked(log: list[LogEntry]) -> list[ApprovalRequestEntry]:
    return [entry for entry in log if isinstance(entry, ApprovalRequestEntry)]


def _words(entry: LogEntry) -> str:
    match entry:
        case RunStartEntry():
            return "run resumes" if entry.resumes else "run starts"
        case RunEndEntry():
            return f"run {entry.outcome}"
        case MessageEntry():
            return _message_words(entry)
        case CustomEntry():
            return str(entry.name)
        case EpochEntry() | ToolListEntry():
            return ""
        case _:
            return str(entry.__struct_config__.tag)


def _message_words(entry: MessageEntry) -> str:
    match entry.message:
        case UserMessage():
            return "user: " + " | ".join(b.text for b in entry.message.content if isinstance(b, TextBlock))
        case AssistantMessage():
            if calls := [block.name for block in entry.message.tool_calls]:
                return f"calls {' '.join(calls)}"
            return f"says {entry.message.text}"
        case ToolResultMessage():
            return f"result {entry.message.outcome.status}"


@contextlib.asynccontextmanager
async def memory_world(
    server: FakeServer, bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MemoryWorld]:
    """Bus, model and executor; start agents with `MemoryWorld.agent`."""
    async with memory_world_of(MemoryWorld, server, bus, monkeypatch) as made:
        yield made


@contextlib.asynccontextmanager
async def memory_world_of(
    kind: type[W], server: FakeServer, bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[W]:
    """As `memory_world`, with a class of the test's own."""
    async with _world(kind, server, bus, monkeypatch) as made:
        monkeypatch.setattr(Registry, "resolve", lambda _, name: (made.mind, name.partition("/")[2]))
        yield made


@contextlib.asynccontextmanager
async def http_world(
    server: FakeServer, bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[MemoryWorld]:
    """As `memory_world`, with the back ends of production: models are asked over HTTP."""
    async with _world(MemoryWorld, server, bus, monkeypatch) as made:
        yield made


@contextlib.asynccontextmanager
async def _world(
    kind: type[W], server: FakeServer, bus: FakeBus, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[W]:
    made = kind(server, bus, monkeypatch)
    monkeypatch.setenv("TEST_KEY", "test")
    await ensure_consumer(
        bus, s.TOOLS, s.tools_consumer(HOST), s.tool_requests(HOST), ack_wait_s=TOOLS_WAIT_S
    )
    await made.heartbeat()
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        executing = tasks.create_task(made.execute(stop))
        beating = tasks.create_task(made.beat())
        try:
            yield made
        finally:
            await made.close()
            stop.set()
            beating.cancel()
            await executing
