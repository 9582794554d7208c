"""What it costs to look for an earlier call that a request may repeat, if its client does not say so."""

import random
import time

from bench.latency import Result
from bench.report import Row, spread
from bench.setting import Json, Options, Setting, setting

COUNTED = {"x-stainless-retry-count": "0"}
BEHIND = (0, 100, 1000)  # equal requests of the last two hours


async def repeated(options: Options) -> Result:
    """The same bytes again and again, without a header of retries, relative to those with one."""
    rows: list[Row] = []
    raw: Json = {}
    async with setting("repeated", options) as here:
        for _ in range(20):
            await _asked(here, {}, "warm")
        done = 0
        for behind in BEHIND:
            while done < options.scaled(behind):
                for headers in ({}, COUNTED):
                    await _asked(here, headers, "again")
                done += 1
            plain: list[float] = []
            counted: list[float] = []
            for _ in range(options.scaled(200)):
                pair = [(plain, {}), (counted, COUNTED)]
                random.shuffle(pair)  # each pays for what the one before it has left to do
                for times, headers in pair:
                    times.append(await _asked(here, headers, "again" if behind else here.new_name()))
                done += bool(behind)
            found, base = spread(plain), spread(counted)
            raw[f"behind {behind}"] = {"plain": found, "counted": base}
            for part, limit in (("p50", 1.25), ("p99", None)):
                name = f"request without a count behind {behind} equal ones, {part}, relative"
                note = f"{found[part]:.1f} and {base[part]:.1f} ms"
                rows.append(Row(name, found[part] / base[part], "x", limit, note=note))
    return rows, raw


async def _asked(here: Setting, headers: dict[str, str], name: str) -> float:
    """Milliseconds until the whole answer is there."""
    url = f"{here.stack.up.base_url}/v1/chat/completions" if here.stack.up else ""
    body = {"model": "main", "messages": [{"role": "user", "content": f"id={name} say 8 tokens"}]}
    began = time.monotonic_ns()
    async with here.client.http.post(url, json=body, headers=headers) as response:
        data = await response.read()
        assert response.status == 200, data[:300]
    return (time.monotonic_ns() - began) / 1e6
