"""Hooks before a tool call: asked once, their decision stored, then read off the log by every owner."""

from collections.abc import Callable

import msgspec
import structlog

from fairlead_agent.hooks.interface import Allow, Ask, Deny, ProposedCall, Rewrite
from fairlead_agent.hooks.loaded import BEFORE_TOOL_CALL, HookFailedError, LoadedHooks, NamedHook
from fairlead_agent.policy.call_facts import CallFacts
from fairlead_agent.policy.verdict import Verdict
from fairlead_common.errors import FairleadError
from fairlead_common.protocol.content import TextBlock, ToolOutcome
from fairlead_common.protocol.entries import HookDecision, HookDecisionEntry
from fairlead_common.protocol.ids import new_id
from fairlead_common.session_log.state import SessionState

log = structlog.get_logger()

MAX_REASON_CHARS = 500
MAX_SHOWN_CHARS = 2000  # of rewritten arguments, in the result
_STRICTNESS: dict[HookDecision, int] = {"none": 0, "allow": 1, "ask": 2, "deny": 3}

ToolArguments = dict[str, object]


async def decide(
    hooks: LoadedHooks,
    call: CallFacts,
    state: SessionState,
    with_arguments: Callable[[ToolArguments], CallFacts],
    problem: Callable[[ToolArguments], str | None],
) -> HookDecisionEntry | None:
    """The decision of all hooks about a call, not stored yet; None: no hook is asked about calls.

    They are asked one after the other until one denies; a later one sees the arguments as rewritten by those
    before. The strictest answer counts.

    Args:
        with_arguments: the facts of the same call with other arguments.
        problem: why arguments do not fit the schema of the tool.
    """
    asked = hooks.that(BEFORE_TOOL_CALL)
    if not asked:
        return None
    decision: HookDecision = "none"
    by = reason = ""
    rewritten_by: list[str] = []
    failed: list[str] = []
    for hook in asked:
        said: HookDecision = "none"
        why = ""
        try:
            answer = await hook.ask(BEFORE_TOOL_CALL, _proposed(call, state))
            if isinstance(answer, Rewrite):
                call = with_arguments(_fitting(hook, answer, problem))
                rewritten_by.append(hook.name)
            else:
                said, why = _decision(hook, answer)
        except HookFailedError as error:
            log.warning("hook_failed", hook=hook.name, call=call.request.call_id, error=str(error))
            failed.append(hook.name)
            if hook.config.on_failure == "closed":
                said, why = "deny", str(error)
        if _STRICTNESS[said] > _STRICTNESS[decision]:
            decision, by, reason = said, hook.name, why[:MAX_REASON_CHARS]
        if decision == "deny":
            break
    return HookDecisionEntry(
        id=new_id(),
        call_id=call.request.call_id,
        decision=decision,
        hook=by,
        reason=reason,
        arguments=call.arguments if rewritten_by else None,
        rewritten_by=rewritten_by,
        failed=failed,
    )


def _decision(hook: NamedHook, answer: object) -> tuple[HookDecision, str]:
    match answer:
        case None:
            return "none", ""
        case Allow(reason):
            return "allow", reason
        case Ask(reason):
            return "ask", reason
        case Deny(reason):
            return "deny", reason
        case _:
            kind = type(answer).__name__
            raise HookFailedError(
                f"hook {hook.name}: must answer Allow, Ask, Deny, Rewrite or None, got {kind}"
            )


def _fitting(
    hook: NamedHook, answer: Rewrite, problem: Callable[[ToolArguments], str | None]
) -> ToolArguments:
    try:  # as they will be stored
        arguments = msgspec.json.decode(msgspec.json.encode(dict(answer.arguments)), type=ToolArguments)
    except (TypeError, ValueError, FairleadError) as error:
        raise HookFailedError(f"hook {hook.name}: rewritten arguments are no JSON object: {error}") from error
    if why := problem(arguments):
        raise HookFailedError(f"hook {hook.name}: rewritten arguments do not fit the tool: {why}")
    return arguments


def _proposed(call: CallFacts, state: SessionState) -> ProposedCall:
    shell, request = call.shell, call.request
    return ProposedCall(
        call_id=request.call_id,
        session=request.session,
        agent=state.agent,
        run_id=state.run.run_id if state.run else "",
        tool=call.spec.name,
        group=call.spec.group,
        read_only=call.spec.read_only,
        arguments=msgspec.json.decode(
            msgspec.json.encode(call.arguments)
        ),  # a copy: answers change it, not this
        host=call.host,
        workspace=request.workspace,
        sandbox=request.sandbox,
        networked=call.networked,
        paths=call.paths,
        commands=[list(words) for words in shell.commands] if shell else [],
        commands_problem=shell.problem if shell else "",
        effects=tuple(call.effects),
        untrusted=state.untrusted,
        private=state.private,
        secret=state.secret,
    )


def judged(verdict: Verdict, stored: HookDecisionEntry | None, *, is_decided: bool) -> Verdict:
    """The policy's verdict with the stored decision of hooks: stricter, or without the question of the mode.

    Args:
        is_decided: a person has answered about this call.
    """
    if stored is None or verdict.action == "deny":
        return verdict
    because = f": {stored.reason}" if stored.reason else ""
    match stored.decision:
        case "deny":
            return Verdict("deny", f"the hook {stored.hook} denies it{because}")
        case "ask" if not is_decided and (verdict.action == "allow" or verdict.lasting):
            return Verdict("ask", f"the hook {stored.hook} wants a person to see it{because}")
        case "allow" if verdict.action == "ask" and verdict.lasting:  # nothing but the mode asks
            return Verdict("allow", f"the hook {stored.hook} allows it{because}")
        case _:
            return verdict


def noted(outcome: ToolOutcome, stored: HookDecisionEntry | None) -> ToolOutcome:
    """The outcome, which says that the call was made with other arguments than the model gave."""
    if stored is None or stored.arguments is None:
        return outcome
    shown = msgspec.json.encode(stored.arguments).decode()
    shown = shown if len(shown) <= MAX_SHOWN_CHARS else f"{shown[:MAX_SHOWN_CHARS]}..."
    names = ", ".join(stored.rewritten_by)
    text = f"[The arguments of this call were changed before it was made, by the hook {names}: {shown}]"
    return msgspec.structs.replace(outcome, content=[TextBlock(text=text), *outcome.content])
