"""More prompts at once than agents have places for: the rate at which they are answered must not fall."""

import asyncio
import time
from typing import Final

from bench.latency import Result
from bench.report import Row
from bench.setting import Json, Options, Setting, requests_and_answers, setting

FEW: Final = 300
MANY: Final = 3_000
AT_ONCE: Final = 64  # requests of the client
ANSWERED_WITHIN_S: Final = 600


async def burst(options: Options) -> Result:
    """Runs a second when 300, and when 3,000 prompts to new sessions are accepted at once."""
    found: Json = {}
    for count in (FEW, options.scaled(MANY)):
        async with setting(f"burst-{count}", options) as here:
            found[str(count)] = await _at(here, count)
    few, many = found.values()
    rows = [
        Row(f"{FEW} prompts at once: runs/s", few["runs_s"], "/s"),
        Row(f"{many['count']} prompts at once: runs/s", many["runs_s"], "/s"),
        Row("of the rate with few", round(many["runs_s"] / few["runs_s"], 2), "x", 0.7, at_least=True),
        Row("requests to the model for each prompt", many["requests"], "", 1.05),
        Row("leases not renewed", many["lease_not_renewed"], ""),
    ]
    return rows, found


async def _at(here: Setting, count: int) -> Json:
    free = asyncio.Semaphore(AT_ONCE)

    async def begin(number: int) -> None:
        async with free:
            name = await here.client.session(f"b{count}-{number}")
            await here.client.prompt(name, f"id={here.new_name()} say 20 tokens")

    began = time.monotonic()
    await asyncio.gather(*(begin(number) for number in range(count)))
    accepted_s = time.monotonic() - began
    answered = 0
    while answered < count:
        assert time.monotonic() - began < ANSWERED_WITHIN_S, f"{answered} of {count} answered"
        await asyncio.sleep(0.5)
        pairs = await asyncio.to_thread(lambda: requests_and_answers(here.model_log()))
        answered = len({request.get("plan") for request, _ in pairs})
    took = time.monotonic() - began
    asked = sum(line["event"] == "request" for line in here.model_log())
    assert here.stack.up is not None
    logs = [path.read_text(errors="replace") for path in (here.stack.up.home / "logs").glob("agent*")]
    assert logs, "agents have no logs"
    return {
        "count": count,
        "accepted_s": round(accepted_s, 1),
        "took_s": round(took, 1),
        "runs_s": round(count / took, 1),
        "requests": round(asked / count, 3),
        **{
            what: sum(text.count(what) for text in logs)
            for what in ("lease_not_renewed", "session_released_on_error", "lease_lost", "ownership_lost")
        },
    }
