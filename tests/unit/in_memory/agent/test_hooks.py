"""Hooks of other packages in a whole agent service: what they decide is stored first, and then holds."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fairlead_agent.hooks import followup, questions
from fairlead_agent.hooks.followup import FOLLOWED, HookFollowUp
from fairlead_agent.hooks.interface import (
    Allow,
    Ask,
    ContextFacts,
    Deny,
    EndedRun,
    HookAnswer,
    HookMessage,
    Hooks,
    ProposedCall,
    Rewrite,
    SettledCall,
)
from fairlead_agent.hooks.loaded import LoadedHooks
from fairlead_agent.hooks.questions import HookFailedError
from fairlead_agent.session.log_readers import LogReaders
from fairlead_agent.tools import held_keys
from fairlead_agent.turn.left_out import by_refusal
from fairlead_common.bus.buckets import Bucket
from fairlead_common.bus.objects import Objects
from fairlead_common.bus.streams import consumer_info
from fairlead_common.config import Config
from fairlead_common.config.hooks import HookConfig
from fairlead_common.errors import UnsafeConfigurationError
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.content import (
    AssistantMessage,
    TextBlock,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
    text_outcome,
)
from fairlead_common.protocol.entries import (
    CustomEntry,
    Entry,
    HookContextEntry,
    HookDecisionEntry,
    MessageEntry,
    RunEndEntry,
    RunStartEntry,
)
from fairlead_common.protocol.messages import ToolCall
from fairlead_common.protocol.notices import UpdateSession
from fairlead_common.service import extensions
from fairlead_common.service.extensions import ExtensionError
from fairlead_common.session_log.records import SEVERAL_ENTRIES
from fairlead_common.session_log.state import SessionState
from tests.support.agent_world import SPECS
from tests.support.fake_nats.faults import Fault
from tests.support.memory_world import MemoryWorld
from tests.unit.in_memory.agent.test_faults import Story, cut_off

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


@pytest.fixture(autouse=True)
def all_services_read_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """No one is asked in memory."""
    monkeypatch.setattr(LogReaders, "may_write", lambda _, kind: kind != SEVERAL_ENTRIES)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Has hooks found by name, as if their packages were installed."""
    found: dict[str, Hooks] = {}
    real = extensions.make

    def make(group: str, name: str, argument: object, built_in: Any = None) -> Any:
        if group != extensions.HOOKS:
            return real(group, name, argument, built_in)
        if name not in found:
            raise ExtensionError(f"extension {name!r} is not installed")
        return found[name]

    monkeypatch.setattr(extensions, "make", make)
    return lambda **named: found.update(named)


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


async def test_a_call_that_a_hook_denies_is_not_made_and_the_model_reads_why(
    w: MemoryWorld, install: Install
) -> None:
    hook = Before(Deny("not on a Friday"))
    install(rota=hook)
    await once(w, {"hooks": {"rota": {}}})
    assert await result(w) == ("denied", "Denied: the hook rota denies it: not on a Friday.")
    assert w.calls == []
    (stored,) = await decisions(w)
    assert (stored.decision, stored.hook, stored.reason) == ("deny", "rota", "not on a Friday")
    (call,) = hook.asked
    assert (call.tool, call.session, call.agent) == ("bash", "a", "main")
    assert call.commands
    assert call.call_id == stored.call_id


async def test_without_a_hook_nothing_is_written_and_the_logs_are_not_followed(w: MemoryWorld) -> None:
    await once(w, {})
    assert await decisions(w) == []
    assert await Bucket(w.bus, s.BUCKET_SESSIONS).last(FOLLOWED) is None
    info = await consumer_info(w.bus, s.SESSIONS, s.HOOKS_CONSUMER) or {}
    assert (info["num_waiting"], info["num_ack_pending"]) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "mode", "rules", "asks"),
    [
        (Allow("known"), "ask", {}, False),  # nothing but the mode asks
        (Allow("known"), "ask", {"policy.ask": ["bash"]}, True),
        (Ask("odd"), "allow-all", {}, True),
        (None, "allow-all", {}, False),
        (None, "ask", {}, True),
    ],
)
async def test_a_hook_asks_for_more_and_allows_only_what_the_mode_asks_about(
    w: MemoryWorld, install: Install, answer: Answer, mode: str, rules: dict[str, object], asks: bool
) -> None:
    hook = Before(answer)
    install(one=hook)
    await w.agent(settings={"hooks.one": {}, "agents.main.mode": mode, **rules})
    await w.say("a", "op=P1 steps=1")
    if asks:
        request = await w.approval("a")
        assert not isinstance(answer, Ask) or "the hook one requires an approval: odd" in request.why
        await w.decide("a", request, "once")
    await w.settled("a", 2 if asks else 1)
    assert (await result(w))[0] == "ok"
    assert len(hook.asked) == len(await decisions(w)) == 1  # not again after the approval


@pytest.mark.parametrize(
    "rules", [{"policy.deny": ["bash"]}, {"agents.main.mode": "safe"}], ids=["rule", "mode"]
)
async def test_what_the_policy_denies_no_hook_allows(
    w: MemoryWorld, install: Install, rules: dict[str, object]
) -> None:
    install(one=Before(Allow()))
    await once(w, {"hooks.one": {}, **rules})
    assert (await result(w))[0] == "denied"
    assert w.calls == []


async def test_rewritten_arguments_are_judged_shown_run_and_told(w: MemoryWorld, install: Install) -> None:
    install(one=Before(Rewrite({"command": "git push origin"})), two=(second := Before(None)))
    rules = {"policy.ask": ["bash(git push *)"]}
    await w.agent(settings={"hooks.one": {}, "hooks.two": {}, **rules})
    await w.say("a", "op=P1 steps=1")
    request = await w.approval("a")
    assert request.arguments == {"command": "git push origin"}
    assert "git push" in request.why
    await w.decide("a", request, "once")
    await w.settled("a", 2)
    assert [call.arguments for call in w.calls] == [{"command": "git push origin"}]
    assert [call.arguments for call in second.asked] == [{"command": "git push origin"}]
    status, words = await result(w)
    assert status == "ok"
    assert words.startswith("[The arguments of this call were changed before it was made, by the hook one: {")
    assert "git push origin" in words


async def test_a_denied_command_cannot_be_smuggled_past_the_rules_by_a_rewrite(
    w: MemoryWorld, install: Install
) -> None:
    install(one=Before(Rewrite({"command": "rm -rf x"})))
    await once(w, {"hooks.one": {}, "policy.deny": ["bash(rm *)"]})
    assert (await result(w))[0] == "denied"
    assert w.calls == []


@pytest.mark.parametrize("on_failure", ["closed", "open"])
@pytest.mark.parametrize(
    ("answer", "pause_s", "words"),
    [
        (ValueError("broken"), 0.0, "before_tool_call failed: ValueError"),
        (None, 60.0, "took longer than 2 s (timeout_s)"),
        ("yes", 0.0, "must answer Allow, Ask, Deny, Rewrite or None, got str"),
        (Rewrite({"command": object()}), 0.0, "not a JSON object"),
    ],
)
async def test_a_hook_that_fails_or_is_late_counts_as_configured(
    w: MemoryWorld, install: Install, answer: Any, pause_s: float, words: str, on_failure: str
) -> None:
    install(one=Before(answer, pause_s=pause_s))
    await once(w, {"hooks.one": {"timeout_s": 2, "on_failure": on_failure}})
    status, said = await result(w)
    (stored,) = await decisions(w)
    assert stored.failed == ["one"]
    if on_failure == "closed":
        assert (status, stored.decision) == ("denied", "deny")
        assert words in said
    else:
        assert (status, stored.decision) == ("ok", "none")


async def test_a_hook_that_is_not_installed_denies_unless_it_is_open(
    w: MemoryWorld, install: Install
) -> None:
    install()
    await once(w, {"hooks": {"gone": {}}})
    assert "extension 'gone' is not installed" in (await result(w))[1]


async def test_the_strictest_of_several_hooks_counts(w: MemoryWorld, install: Install) -> None:
    install(a=Before(Allow("fine")), b=Before(Deny("no")), c=(third := Before(Allow())))
    await once(w, {"hooks": {"a": {}, "b": {}, "c": {}}})
    assert (await result(w))[1] == "Denied: the hook b denies it: no."
    assert third.asked == []


async def test_an_abort_while_a_hook_is_asked_makes_no_call(w: MemoryWorld, install: Install) -> None:
    install(one=(hook := Before(None, pause_s=5.0)))
    await w.agent(settings={"hooks.one": {"timeout_s": 20}})
    await w.say("a", "op=P1 steps=1")
    while not hook.asked:
        await asyncio.sleep(0.1)
    await w.abort("a")
    assert (await w.settled("a"))[-1] == "run aborted"
    assert w.calls == []


async def test_a_call_is_made_where_the_session_is_when_the_hook_has_answered(
    w: MemoryWorld, install: Install
) -> None:
    install(one=(hook := Before(None, pause_s=5.0)))
    await w.agent(settings={"hooks.one": {"timeout_s": 20}})
    await w.say("a", "op=P1 steps=1")
    await until(lambda: hook.asked)
    await w.notice("a", "update-1", UpdateSession(sandbox="docker"))
    await w.settled("a")
    assert [call.sandbox for call in w.calls] == ["docker"]
    assert len(hook.asked) == 1


async def test_calls_side_by_side_start_together_after_hooks_were_asked_about_each(
    w: MemoryWorld, install: Install
) -> None:
    install(one=(hook := Before(None)))
    await w.agent(settings={"hooks.one": {}})
    together = asyncio.Barrier(3)

    async def meet(_: ToolCall) -> ToolOutcome:
        async with asyncio.timeout(30):
            await together.wait()
        return await w.tool_says("met")

    w.tool = meet
    await w.say("a", "op=P1 steps=1 calls=3 tool=read path=x")
    await w.settled("a")
    assert len(hook.asked) == 3
    statuses = [m.outcome.status for m in await w.messages("a") if isinstance(m, ToolResultMessage)]
    assert statuses == ["ok"] * 3


async def test_rewritten_arguments_that_fit_the_tool_no_longer_are_refused_after_a_park(
    w: MemoryWorld, install: Install
) -> None:
    install(one=Before(Rewrite({"command": "git push origin"})))
    await w.agent(settings={"hooks.one": {}, "agents.main.mode": "ask"})
    await w.say("a", "op=P1 steps=1")
    request = await w.approval("a")
    narrow = {"type": "object", "properties": {"command": {"not": {"const": "git push origin"}}}}
    w.specs = [msgspec.structs.replace(SPECS[0], parameters=narrow), SPECS[1]]
    await w.heartbeat()
    await w.decide("a", request, "once")
    await w.settled("a", 2)
    status, said = await result(w)
    assert status == "error"
    assert "Invalid arguments for bash" in said
    assert w.calls == []


# -- context -----------------------------------------------------------------------


async def test_what_a_hook_adds_is_stored_and_read_by_the_model_from_then_on(
    w: MemoryWorld, install: Install
) -> None:
    install(notes=(hook := Notes()))
    await once(w, {"hooks": {"notes": {}}})
    (stored,) = [entry for entry in await w.log("a") if isinstance(entry, HookContextEntry)]
    assert [(each.hook, each.text) for each in stored.messages] == [("notes", "note 1")]
    assert [facts.turn for facts in hook.asked] == [1, 2]
    for request in w.mind.requests:
        said = [str(message["content"]) for message in request if message["role"] == "user"]
        assert said[1:] == ["op=P1 steps=1", "[notes] note 1"]


async def test_a_context_hook_that_fails_holds_nothing_up(w: MemoryWorld, install: Install) -> None:
    install(notes=Notes(failing=True))
    await once(w, {"hooks": {"notes": {}}})
    assert (await result(w))[0] == "ok"
    assert not any(isinstance(entry, HookContextEntry) for entry in await w.log("a"))


async def test_what_hooks_add_to_one_run_has_a_limit(w: MemoryWorld, install: Install) -> None:
    class Talks(Hooks):
        async def context(self, facts: ContextFacts) -> Sequence[HookMessage]:
            return [HookMessage(hook="", text="x" * 19_000)]

    def added(log: list[Entry]) -> int:
        return sum(isinstance(entry, HookContextEntry) for entry in log)

    install(a=Talks(), b=Talks())
    agent = await w.agent(settings={"hooks": {"a": {}, "b": {}}, "agents.main.mode": "ask"})
    await w.say("a", "op=P1 steps=4")
    for turn in range(4):  # also with another owner, and after each approval
        await w.decide("a", await w.approval("a"), "once")
        await w.run_end("a", turn + 2)
        if turn == 1:
            await agent.kill()
            await w.agent("agent-2", {"hooks": {"a": {}, "b": {}}, "agents.main.mode": "ask"})
    assert added(await w.log("a")) == 3, "after 114,000 characters no more"
    await w.say("a", "hello")
    await w.run_end("a", 6)
    assert added(await w.log("a")) == 4


# -- afterwards ---------------------------------------------------------------------


async def until(condition: Callable[[], object], timeout_s: float = 600.0) -> None:
    end = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.1)


async def test_a_hook_is_told_of_results_and_ends_again_if_it_failed(
    w: MemoryWorld, install: Install
) -> None:
    install(told=(hook := Told(failures=2)))
    await once(w, {"hooks": {"told": {}}})
    await until(lambda: len(hook.calls) == 3 and hook.runs)
    assert len({call.call_id for call in hook.calls}) == 1
    assert (hook.calls[0].tool, hook.calls[0].outcome.status) == ("bash", "ok")
    assert [(run.outcome, run.turns, run.session) for run in hook.runs] == [("completed", 2, "a")]


async def test_a_late_hook_delays_no_run(w: MemoryWorld, install: Install) -> None:
    class Slow(Hooks):
        async def on_run_end(self, run: EndedRun) -> None:
            await asyncio.sleep(1000)

    install(slow=Slow())
    began = asyncio.get_running_loop().time()
    await once(w, {"hooks": {"slow": {"timeout_s": 60}}})
    assert asyncio.get_running_loop().time() - began < 5


async def test_what_an_agent_did_not_tell_before_it_died_is_told_by_the_next_one(
    w: MemoryWorld, install: Install
) -> None:
    first = Told(failures=1_000_000)
    install(told=first)
    settings: dict[str, object] = {"hooks": {"told": {}}}
    dying = await w.agent("agent-1", settings)
    await w.say("a", "op=P1 steps=1")
    await w.settled("a")
    await until(lambda: first.calls)
    await dying.kill()
    install(told=(second := Told()))
    await w.agent("agent-2", settings)
    await until(lambda: second.calls)
    assert second.calls[0].call_id == first.calls[0].call_id


@pytest.mark.parametrize("unused_s", [0.0, 1e9], ids=["long ago", "lately"])
async def test_hooks_are_not_told_of_what_was_before_them_but_of_what_they_were_away_for(
    w: MemoryWorld, install: Install, monkeypatch: pytest.MonkeyPatch, unused_s: float
) -> None:
    monkeypatch.setattr(followup, "UNUSED_S", unused_s)
    install(told=(hook := Told()))
    without = await w.agent("agent-1", {})
    await w.say("a", "op=P1 steps=1")
    await w.settled("a")
    await without.drain()
    hooked = await w.agent("agent-2", {"hooks": {"told": {}}})
    await w.say("b", "op=P2 steps=1")
    await w.settled("b")
    await until(lambda: hook.runs)
    assert [run.session for run in hook.runs] == ["b"]
    await hooked.drain()
    without = await w.agent("agent-3", {"hooks": {}})
    await w.say("c", "op=P3 steps=1")
    await w.settled("c")
    await without.drain()
    await w.agent("agent-4", {"hooks": {"told": {}}})
    await w.say("d", "op=P4 steps=1")
    await w.settled("d")
    await until(lambda: hook.runs[-1].session == "d")
    assert {run.session for run in hook.runs} == ({"b", "d"} if unused_s == 0 else {"b", "c", "d"})


# -- hooks that misbehave ---------------------------------------------------------------


class Raises(Hooks):
    """Does before a call what it is given."""

    def __init__(self, act: Callable[[], Awaitable[HookAnswer | None]]) -> None:
        self.act = act
        self.asked = 0

    async def before_tool_call(self, call: ProposedCall) -> HookAnswer | None:
        self.asked += 1
        return await self.act()


async def _cancelled() -> None:
    raise asyncio.CancelledError


async def _cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def _exits() -> None:
    raise SystemExit(3)


def _cyclic() -> dict[str, object]:
    found: dict[str, object] = {}
    found["command"] = found
    return found


def _gives(answer: Any) -> Callable[[], Awaitable[Any]]:
    async def act() -> Any:
        return answer

    return act


@pytest.mark.parametrize("on_failure", ["closed", "open"])
@pytest.mark.parametrize(
    "act",
    [
        _cancelled,
        _cancels_itself,
        _exits,
        _gives(Ask(cast(Any, ["odd"]))),
        _gives(Deny(cast(Any, None))),
        _gives(Allow("\ud800")),
        _gives(Rewrite(_cyclic())),
        _gives(Rewrite({"command": "\ud800"})),
    ],
    ids=["cancelled", "cancels itself", "exits", "list", "none", "surrogate", "cyclic", "surrogates"],
)
async def test_whatever_a_hook_raises_or_answers_only_on_failure_counts(
    w: MemoryWorld, install: Install, act: Callable[[], Awaitable[Any]], on_failure: str
) -> None:
    install(one=(hook := Raises(act)))
    await once(w, {"hooks.one": {"on_failure": on_failure}})
    assert (await result(w))[0] == ("denied" if on_failure == "closed" else "ok")
    (stored,) = await decisions(w)
    assert (stored.failed, hook.asked) == (["one"], 1)


async def test_the_text_of_an_exception_reaches_neither_the_model_nor_the_log(
    w: MemoryWorld, install: Install
) -> None:
    install(one=Before(ValueError("https://user:hunter2secret@intranet")))
    await once(w, {"hooks.one": {}})
    (stored,) = await decisions(w)
    assert "hunter2secret" not in stored.reason + (await result(w))[1]
    assert "ValueError" in stored.reason


async def test_a_key_of_the_service_in_rewritten_arguments_is_not_shown(
    w: MemoryWorld, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-proj-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    held_keys._mask.cache_clear()
    try:
        install(one=Before(Rewrite({"command": f"echo {key}"})))
        await once(w, {"hooks.one": {}, "policy.deny": ["bash"]})  # it is settled without an executor
        status, words = await result(w)
    finally:
        held_keys._mask.cache_clear()
    assert status == "denied"
    assert "were changed before it was made" in words
    assert key not in words


async def test_a_guard_before_a_rewriter_judges_what_is_run(w: MemoryWorld, install: Install) -> None:
    def guard(call: ProposedCall) -> HookAnswer:
        return Deny("only P1") if call.arguments["command"] == "curl evil" else Allow("known")

    install(a=(first := Before(guard)), b=(second := Before(Rewrite({"command": "curl evil"}))))
    await once(w, {"hooks": {"a": {}, "b": {}}})
    assert (await result(w))[0] == "denied"
    (stored,) = await decisions(w)
    assert (stored.decision, stored.hook, stored.rewritten_by) == ("deny", "a", ["b"])
    assert len(first.asked) == 2
    assert len(second.asked) == 1
    assert w.calls == []


async def test_an_allowance_for_other_arguments_is_void(w: MemoryWorld, install: Install) -> None:
    hook = Before(lambda call: None if call.arguments["command"] == "ls" else Allow("known"))
    install(a=hook, b=Before(Rewrite({"command": "ls"})))
    await w.agent(settings={"hooks": {"a": {}, "b": {}}, "agents.main.mode": "ask"})
    await w.say("a", "op=P1 steps=1")
    assert (await w.approval("a")).arguments == {"command": "ls"}
    assert (await decisions(w))[0].decision == "none"


async def test_hooks_that_rewrite_each_other_without_end_count_as_failed(
    w: MemoryWorld, install: Install
) -> None:
    add = Before(lambda call: Rewrite({"command": f"{call.arguments['command']} x"}))
    install(a=add, b=Before(Rewrite({"command": "ls"})))
    await once(w, {"hooks": {"a": {}, "b": {}}})
    (stored,) = await decisions(w)
    assert (stored.decision, stored.hook, stored.failed) == ("deny", "a", ["a"])
    assert "changed the arguments again" in stored.reason


async def _deaf(seconds: float) -> None:
    """Sleeps, and does not let itself be cancelled."""
    end = asyncio.get_running_loop().time() + seconds
    while (rest := end - asyncio.get_running_loop().time()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(rest)


async def test_the_answer_of_a_hook_that_swallows_its_cancellation_comes_too_late(
    w: MemoryWorld, install: Install
) -> None:
    async def act() -> HookAnswer:
        await _deaf(30)
        return Allow("late")

    install(one=Raises(act))
    await w.agent(settings={"hooks.one": {"timeout_s": 2}, "agents.main.mode": "ask"})
    began = asyncio.get_running_loop().time()
    await w.say("a", "op=P1 steps=1")
    await w.settled("a")
    assert asyncio.get_running_loop().time() - began < 20
    assert "took longer than 2 s" in (await result(w))[1]


@pytest.mark.parametrize("ends", ["abort", "drain", "steer"])
async def test_no_hook_holds_up_the_end_of_a_run(w: MemoryWorld, install: Install, ends: str) -> None:
    async def act() -> None:
        await _deaf(50)

    install(one=(hook := Raises(act)))
    agent = await w.agent(settings={"hooks.one": {"timeout_s": 60}})
    await w.say("a", "op=P1 steps=1")
    await until(lambda: hook.asked)
    began = asyncio.get_running_loop().time()
    if ends == "abort":
        await w.abort("a")
        assert (await w.settled("a"))[-1] == "run aborted"
    elif ends == "drain":
        await agent.drain()
        assert "handed_over" in await w.story("a")
    else:
        await w.say("a", "hello", "steer")
        await w.settled("a")
        assert (await result(w))[0] == "skipped"
    assert asyncio.get_running_loop().time() - began < 8
    assert await decisions(w) == []
    assert w.calls == []


async def test_a_hook_with_too_many_unended_questions_is_not_asked_again() -> None:
    async def question() -> None:
        await _deaf(100)

    left: set[asyncio.Task[Any]] = set()
    for _ in range(questions.MAX_LEFT):
        with pytest.raises(HookFailedError, match="took longer"):
            await questions.ask("hook a", question, 0.5, lambda: False, left)
    with pytest.raises(HookFailedError, match="16 earlier questions"):
        await questions.ask("hook a", question, 0.5, lambda: False, left)
    await asyncio.sleep(120)
    assert not left


async def test_an_answer_that_blocked_the_loop_for_too_long_does_not_count() -> None:
    async def question() -> str:
        cast(Any, asyncio.get_running_loop())._jumping.now_s += 1.0  # as if it had computed
        return "yes"

    with pytest.raises(HookFailedError, match="took longer"):
        await questions.ask("hook a", question, 0.5, lambda: False, set())


class Misspelt(Hooks):
    async def before_tool_calls(self, call: ProposedCall) -> HookAnswer:
        return Deny(call.tool)


@pytest.mark.parametrize("made", [Misspelt(), object(), None], ids=["misspelt", "object", "none"])
async def test_what_is_no_hook_denies_as_one_that_cannot_be_loaded(
    w: MemoryWorld, install: Install, made: Any
) -> None:
    install(one=made)
    await once(w, {"hooks.one": {}})
    status, words = await result(w)
    assert status == "denied"
    assert "'one' of the group fairlead.hooks" in words


async def test_a_factory_that_exits_ends_no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    def exits(*_: object) -> None:
        raise SystemExit(3)

    monkeypatch.setattr(extensions, "load", lambda *_: exits)
    loaded = LoadedHooks(cast(Any, SimpleNamespace(current=Config(hooks={"one": HookConfig()}))))
    loaded.load()
    (hook,) = loaded.that("before_tool_call")
    with pytest.raises(HookFailedError, match="SystemExit"):
        await hook.ask("before_tool_call", None, lambda _: None, lambda: False)


# -- services that do not read the entries ----------------------------------------------


@pytest.mark.parametrize("on_failure", ["closed", "open"])
async def test_where_a_service_does_not_read_decisions_none_is_written(
    w: MemoryWorld, install: Install, monkeypatch: pytest.MonkeyPatch, on_failure: str
) -> None:
    monkeypatch.setattr(LogReaders, "may_write", lambda _, kind: kind in (1, "tool_list"))
    install(one=(hook := Before(Allow())), notes=(notes := Notes()))
    await once(w, {"hooks": {"one": {"on_failure": on_failure}, "notes": {}}})
    log = await w.log("a")
    assert not any(isinstance(entry, HookDecisionEntry | HookContextEntry) for entry in log)
    assert not hook.asked
    assert not notes.asked
    status, words = await result(w)
    assert status == ("denied" if on_failure == "closed" else "ok")
    assert on_failure == "open" or "a running service cannot read hook_decision" in words


async def test_a_call_waits_until_the_services_have_announced_what_they_read(
    w: MemoryWorld, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    monkeypatch.setattr(LogReaders, "may_write", lambda _, kind: kind == 1 or loop.time() > began + 4)
    install(one=Before(None))
    await once(w, {"hooks.one": {}})
    assert (await result(w))[0] == "ok"
    assert len(await decisions(w)) == 1


# -- messages of hooks in the conversation -----------------------------------------------


def _conversation() -> SessionState:
    state = SessionState("a")
    prompt = UserMessage(content=[TextBlock(text="HEARTBEAT")], source="system")
    notes = [HookMessage(hook="n", text="one"), HookMessage(hook="n", text="two")]
    state.apply(RunStartEntry(id="r", agent="main", model="m", mode="ask"), 1)
    state.apply(MessageEntry(id="u", message=prompt), 2)
    state.apply(HookContextEntry(id="h", messages=notes), 3)
    return state


def test_a_quiet_heartbeat_leaves_nothing_of_what_hooks_added() -> None:
    state = _conversation()
    answer = AssistantMessage(content=[TextBlock(text="HEARTBEAT_OK")], model="m", stop_reason="stop")
    state.apply(MessageEntry(id="b", message=answer), 4)
    assert [item.entry_id for item in state.items] == ["u", "h", "h", "b"]  # of the log, each
    state.apply(CustomEntry(id="q", name="heartbeat_ok", data={}), 5)
    state.apply(RunEndEntry(id="e", outcome="completed"), 6)
    assert state.items == []


def test_what_a_provider_refuses_is_not_what_a_hook_added_but_what_was_said() -> None:
    assert by_refusal(_conversation(), 5000, "input", too_long=False).whole == ["u"]
    state = _conversation()
    state.items[0].message = ToolResultMessage(
        call_id="c", name="bash", outcome=text_outcome("ok", "x", is_error=False)
    )
    assert "u" in by_refusal(state, 5000, "input", too_long=False).whole


@pytest.mark.parametrize(
    "message",
    [HookMessage(hook="", text="x", untrusted=cast(Any, 1)), HookMessage(hook="", text="\ud800")],
    ids=["flag", "surrogate"],
)
async def test_a_message_that_could_not_be_read_again_is_not_stored(
    w: MemoryWorld, install: Install, message: HookMessage
) -> None:
    class Odd(Hooks):
        async def context(self, facts: ContextFacts) -> Sequence[HookMessage]:
            return [message]

    install(odd=Odd())
    await once(w, {"hooks.odd": {}})
    assert (await result(w))[0] == "ok"
    assert not any(isinstance(entry, HookContextEntry) for entry in await w.log("a"))


# -- telling, when something is wrong ---------------------------------------------------


async def test_a_follow_up_that_cannot_begin_stops_no_agent(
    w: MemoryWorld, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_: HookFollowUp) -> None:
        raise UnsafeConfigurationError("the consumer hooks is another one")

    monkeypatch.setattr(HookFollowUp, "prepare", refused)
    install(told=Told())
    await once(w, {"hooks.told": {}})
    assert (await result(w))[0] == "ok"


async def test_a_place_in_the_logs_that_cannot_be_read_stops_no_agent(
    w: MemoryWorld, install: Install
) -> None:
    await Bucket(w.bus, s.BUCKET_SESSIONS).put(FOLLOWED, b'{"begin": "here"}')
    install(told=Told())
    await once(w, {"hooks.told": {}})
    assert (await result(w))[0] == "ok"


async def test_a_hook_that_is_cancelled_is_told_again(w: MemoryWorld, install: Install) -> None:
    class Cancelled(Hooks):
        told = 0

        async def on_run_end(self, run: EndedRun) -> None:
            self.told += 1
            if self.told < 3:
                raise asyncio.CancelledError

    install(told=(hook := Cancelled()))
    await once(w, {"hooks.told": {}})
    await until(lambda: hook.told == 3)


async def test_a_record_that_killed_every_agent_that_told_it_is_given_up(
    w: MemoryWorld, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followup, "MAX_DELIVERIES", 0)  # as if it had been delivered so often
    install(told=(hook := Told()))
    await once(w, {"hooks.told": {}})
    await asyncio.sleep(10)
    assert not hook.runs
    assert not hook.calls


async def test_threads_that_hooks_took_keep_no_object_from_being_read(
    w: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(1_000_000)

    monkeypatch.setattr(asyncio, "to_thread", never)
    objects = Objects(w.bus)
    assert await objects.get(await objects.put(b"tools")) == b"tools"


# -- takeovers -----------------------------------------------------------------------


def _counting() -> Before:
    """Answers otherwise each time that it is asked: what runs shows which answer counted."""
    hook = Before(None)
    hook.answers = [lambda _: Rewrite({"command": f"echo {len(hook.asked)}"})]
    return hook


async def _rewritten(w: MemoryWorld) -> list[str]:
    await w.say("a", "op=P1 steps=1")
    await w.decide("a", await w.approval("a"), "once")
    story = await w.settled("a", 2)
    stored = await decisions(w)
    assert len(stored) == 1
    assert [call.arguments for call in w.calls] == [stored[0].arguments]
    return story


_STORY = Story(
    _rewritten,
    [
        *("run starts", "user: op=P1 steps=1", "calls bash", "hook_decision", "approval_request"),
        *("run waiting_approval", "run resumes", "approval", "result ok", "says done P1", "run completed"),
    ],
    1,
    "ask",
    (("hooks.count", {}),),
)


@pytest.mark.parametrize("fault", [Fault.DEAD_BEFORE, Fault.DEAD_AFTER, None], ids=str)
async def test_a_takeover_repeats_the_decision_and_not_the_hook(
    fault: Fault | None, monkeypatch: pytest.MonkeyPatch, install: Install
) -> None:
    install(count=_counting())
    assert await cut_off(_STORY, fault, 3, 8, monkeypatch) > 25


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", [*Fault, None], ids=str)
async def test_a_takeover_repeats_the_decision_whichever_message_is_cut_off(
    fault: Fault | None, monkeypatch: pytest.MonkeyPatch, install: Install
) -> None:
    install(count=_counting())
    assert await cut_off(_STORY, fault, 0, 1, monkeypatch) > 25
