"""Hooks that tests install, and what came of them."""

import asyncio
from collections.abc import Callable, Sequence

from fairlead_agent.hooks.interface import (
    ContextFacts,
    EndedRun,
    HookAnswer,
    HookMessage,
    Hooks,
    ProposedCall,
    SettledCall,
)
from fairlead_common.protocol.content import TextBlock, ToolResultMessage
from fairlead_common.protocol.entries import HookDecisionEntry
from tests.support.memory_world import MemoryWorld

Answer = HookAnswer | None | Exception | Callable[[ProposedCall], HookAnswer | None]


class Before(Hooks):
    """Answers as it is told; `asked` is what it was asked about."""

    def __init__(self, *answers: Answer, pause_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.asked: list[ProposedCall] = []
        self.pause_s = pause_s

    async def before_tool_call(self, call: ProposedCall) -> HookAnswer | None:
        self.asked.append(call)
        await asyncio.sleep(self.pause_s)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer(call) if callable(answer) else answer


class Notes(Hooks):
    """Adds a note to the first request of each run; `failing` says that it does not."""

    def __init__(self, *, failing: bool = False) -> None:
        self.asked: list[ContextFacts] = []
        self.failing = failing

    async def context(self, facts: ContextFacts) -> Sequence[HookMessage]:
        self.asked.append(facts)
        if self.failing:
            raise ValueError("no notes")
        return [HookMessage(hook="", text=f"note {len(self.asked)}")] if facts.turn == 1 else ()


class Told(Hooks):
    """Keeps what it is told; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.calls: list[SettledCall] = []
        self.runs: list[EndedRun] = []

    async def after_tool_result(self, call: SettledCall) -> None:
        self.calls.append(call)
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("away")

    async def on_run_end(self, run: EndedRun) -> None:
        self.runs.append(run)


Install = Callable[..., None]


async def decisions(w: MemoryWorld) -> list[HookDecisionEntry]:
    return [entry for entry in await w.log("a") if isinstance(entry, HookDecisionEntry)]


async def result(w: MemoryWorld) -> tuple[str, str]:
    (found,) = [m for m in await w.messages("a") if isinstance(m, ToolResultMessage)]
    texts = [block.text for block in found.outcome.content if isinstance(block, TextBlock)]
    return found.outcome.status, "\n".join(texts)


async def once(w: MemoryWorld, settings: dict[str, object]) -> None:
    await w.agent(settings=settings)
    await w.say("a", "op=P1 steps=1")
    await w.settled("a")
