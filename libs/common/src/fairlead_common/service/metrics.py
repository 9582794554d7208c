"""Every instrument of the services. Names and labels are an interface: dashboards and alerts use them.

`provider` is the back end of a model, `agent` a profile of the configuration, `kind` of a tool its family:
none of them can be chosen freely by who sends a prompt.
"""

from typing import Final

from fairlead_common.service.instruments import CounterInstrument, GaugeInstrument, HistogramInstrument

# -- gateway
PROMPTS: Final = CounterInstrument(
    "fairlead_prompts_accepted_total", "Prompts, steers and follow-ups that were stored, by kind.", "kind"
)
REQUESTS: Final = CounterInstrument(
    "fairlead_gateway_requests_total", "HTTP requests, by operation and status.", "operation", "status"
)
REQUEST_SECONDS: Final = HistogramInstrument(
    "fairlead_gateway_request_seconds",
    "Time until the answer to an HTTP request began, by operation.",
    "operation",
    bounds=(0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
AUTH_FAILURES: Final = CounterInstrument(
    "fairlead_auth_failures_total",
    "Requests that were refused for their credentials: unauthorized, forbidden, throttled.",
    "reason",
)
EVENT_STREAMS: Final = GaugeInstrument(
    "fairlead_event_streams", "Event streams and streamed answers that are open."
)

# -- agent
RUNS: Final = CounterInstrument("fairlead_runs_total", "Runs that ended, by outcome.", "agent", "outcome")
RUN_SECONDS: Final = HistogramInstrument(
    "fairlead_run_seconds", "Duration of runs that ended, by outcome.", "outcome"
)
FIRST_TOKEN_SECONDS: Final = HistogramInstrument(
    "fairlead_first_token_seconds",
    "Time from a request to a model until its first token, by provider.",
    "provider",
)
RUN_FIRST_TOKEN_SECONDS: Final = HistogramInstrument(
    "fairlead_run_first_token_seconds",
    "Time from the beginning of a run until the first token of its first reply.",
)
MODEL_REQUESTS: Final = CounterInstrument(
    "fairlead_model_requests_total",
    "Requests to models, by provider and outcome.",
    "provider",
    "outcome",
)
MODEL_SECONDS: Final = HistogramInstrument(
    "fairlead_model_request_seconds", "Duration of answered requests to models.", "provider"
)
MODEL_TOKENS: Final = CounterInstrument(
    "fairlead_model_tokens_total",
    "Tokens of answered requests: input, output, cache_read, cache_write.",
    "provider",
    "kind",
)
MODEL_COST: Final = CounterInstrument(
    "fairlead_model_cost_usd_total",
    "Dollars that answered requests cost, where the price is known.",
    "provider",
)
TOOL_CALLS: Final = CounterInstrument(
    "fairlead_tool_calls_total",
    "Tool calls that have a result, by kind of tool and outcome.",
    "kind",
    "outcome",
)
TOOL_SECONDS: Final = HistogramInstrument(
    "fairlead_tool_call_seconds", "Duration of tool calls that ran, by kind of tool.", "kind"
)
TAKEOVERS: Final = CounterInstrument(
    "fairlead_session_takeovers_total", "Open runs that another owner took over."
)
