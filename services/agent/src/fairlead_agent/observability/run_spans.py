"""The trace of a run, made of what its owner has just stored, in the terms of OpenTelemetry for models."""

from collections.abc import Sequence

from fairlead_agent.observability.run_metrics import provider_of
from fairlead_common.protocol.content import AssistantMessage, ToolResultMessage
from fairlead_common.protocol.entries import Entry, MessageEntry, RunEndEntry
from fairlead_common.service.telemetry import AttributeValue, EndedSpan, has_traces, record_span, span_id
from fairlead_common.session_log.state import SessionState


def run_span_id(run_id: str) -> str:
    """The id of a run's span."""
    return span_id("run", run_id)


def call_span_id(call_id: str) -> str:
    """The id of the span of a tool call, which that of its executor is below."""
    return span_id("call", call_id)


def trace_stored(state: SessionState, entries: Sequence[Entry], trace: str | None) -> None:
    """Export the spans that these entries end: of a run, a reply, a tool call.

    Args:
        trace: `traceparent` of the prompt that is being worked on.
    """
    if not has_traces() or not trace:
        return
    for entry in entries:
        match entry:
            case MessageEntry(message=AssistantMessage() as message):
                record_span(_reply(state.session, entry, message, trace))
            case MessageEntry(message=ToolResultMessage() as message):
                record_span(_call(state.session, entry, message, trace))
            case RunEndEntry():
                record_span(_run(state.session, entry, trace))
            case _:
                pass


def _run(session: str, entry: RunEndEntry, trace: str) -> EndedSpan:
    agent = entry.agent or "main"
    return EndedSpan(
        f"invoke_agent {agent}",
        trace,
        run_span_id(entry.run_id or ""),
        entry.ts - entry.duration_ms,
        entry.ts,
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": session,
            "gen_ai.usage.input_tokens": entry.usage.input_tokens,
            "gen_ai.usage.output_tokens": entry.usage.output_tokens,
            "fairlead.run.id": entry.run_id or "",
            "fairlead.run.outcome": entry.outcome,
            "fairlead.run.turns": entry.turns,
            "fairlead.cost_usd": entry.usage.cost_usd,
        },
        error=(entry.error_code or "failed") if entry.outcome == "failed" else "",
    )


def _reply(session: str, entry: MessageEntry, message: AssistantMessage, trace: str) -> EndedSpan:
    model = message.model.partition("/")[2] or message.model
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider_of(message.model),
        "gen_ai.request.model": model,
        "gen_ai.conversation.id": session,
        "gen_ai.usage.input_tokens": message.usage.input_tokens,
        "gen_ai.usage.output_tokens": message.usage.output_tokens,
        "fairlead.stop_reason": message.stop_reason,
    }
    if message.first_token_ms is not None:
        attributes["fairlead.first_token_ms"] = message.first_token_ms
    return EndedSpan(
        f"chat {model}",
        trace,
        span_id("reply", entry.id),
        entry.ts - message.duration_ms,
        entry.ts,
        kind="client",
        parent=run_span_id(entry.run_id or ""),
        attributes=attributes,
        error=message.error_code or "",
    )


def _call(session: str, entry: MessageEntry, message: ToolResultMessage, trace: str) -> EndedSpan:
    outcome = message.outcome
    failed = outcome.status not in ("ok", "denied", "skipped", "cancelled")
    return EndedSpan(
        f"execute_tool {message.name}",
        trace,
        call_span_id(message.call_id),
        entry.ts - outcome.duration_ms,
        entry.ts,
        parent=run_span_id(entry.run_id or ""),
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": message.name,
            "gen_ai.tool.call.id": message.call_id,
            "gen_ai.conversation.id": session,
            "fairlead.call.status": outcome.status,
        },
        error=outcome.status if failed else "",
    )
