"""Hooks that add to the conversation before the model is asked. What they add is an entry of the log."""

import asyncio

import structlog

from fairlead_agent.hooks.interface import ContextFacts
from fairlead_agent.hooks.loaded import CONTEXT, HookFailedError, LoadedHooks, NamedHook
from fairlead_common.protocol.entries import HookContextEntry, HookMessage
from fairlead_common.protocol.ids import new_id
from fairlead_common.session_log.state import SessionState

log = structlog.get_logger()

MAX_CHARS = 20_000  # of the texts of one hook for one request


async def collect(hooks: LoadedHooks, state: SessionState) -> HookContextEntry | None:
    """What hooks add to the next request; None: nothing, or they have already."""
    asked = hooks.that(CONTEXT)
    if not asked or state.has_hook_context or state.asks_again or state.run is None or not state.items:
        return None
    facts = ContextFacts(
        session=state.session,
        agent=state.agent,
        run_id=state.run.run_id,
        after=state.items[-1].entry_id,
        turn=state.run.turns + 1,
        messages=tuple(item.message for item in state.items),
    )
    found = await asyncio.gather(*(_ask(hook, facts) for hook in asked))
    messages = [message for each in found for message in each]
    return HookContextEntry(id=new_id(), messages=messages) if messages else None


async def _ask(hook: NamedHook, facts: ContextFacts) -> list[HookMessage]:
    try:
        answer = list(await hook.ask(CONTEXT, facts) or ())
        if not all(isinstance(each, HookMessage) for each in answer):
            raise HookFailedError(f"hook {hook.name}: context must give a list of HookMessage")
        if (size := sum(len(each.text) for each in answer)) > MAX_CHARS:
            raise HookFailedError(f"hook {hook.name}: at most {MAX_CHARS} characters of context, got {size}")
    except (HookFailedError, TypeError) as error:
        log.warning("hook_failed", hook=hook.name, session=facts.session, error=str(error))
        return []
    return [
        HookMessage(hook=hook.name, text=each.text, untrusted=each.untrusted) for each in answer if each.text
    ]
