"""Claude's server without a socket, strict as its vendor, which charges for input as its vendor does.

The beginning of a request up to a breakpoint is kept for five minutes, and longer with each use. A request
pays a tenth for what it has in common with something kept, which is looked for at its breakpoints and the 20
blocks before each; a quarter more for what it adds up to its last breakpoint; the full price for the rest.
"""

import hashlib
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from fairlead_agent.models.anthropic import Anthropic
from fairlead_agent.models.provider_http import refusal
from tests.support.strict_model import StrictModel, claude

Json = dict[str, Any]

KEPT_S: Final = 300.0
LOOKBACK_BLOCKS: Final = 20
LEAST_TOKENS: Final = 1024  # that are kept
READ, WRITTEN = 0.1, 1.25


class Bill(NamedTuple):
    """Tokens of one request."""

    read: int
    written: int
    rest: int

    @property
    def cost(self) -> float:
        """In prices of a token that is neither read from the cache nor written to it."""
        return READ * self.read + WRITTEN * self.written + self.rest

    @property
    def uncached(self) -> int:
        """What it would cost without a cache."""
        return sum(self)


class BillingClaude(StrictModel):
    """Takes the place of `ProviderHttp`.

    Fields:
        bills: of each request that was answered.

    Args:
        answer: gives the content blocks of the reply to the request with a number.
    """

    host = url = "claude"

    def __init__(self, answer: Callable[[int], list[Json]]) -> None:
        super().__init__()
        self.bills: list[Bill] = []
        self._answer = answer
        self._kept: dict[str, float] = {}  # by the hash of a beginning, until when

    async def events(
        self, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[list[bytes]]:
        """See `ProviderHttp.events`."""
        assert (path, headers) == ("/v1/messages", {"anthropic-beta": "interleaved-thinking-2025-05-14"})
        request = json.loads(body)
        if found := list(self._claude_problems(request)):
            self.refused += found
            error = {"type": "invalid_request_error", "message": "; ".join(found)}
            raise refusal(self.host, 400, json.dumps({"type": "error", "error": error}).encode())
        bill = self._charge(_blocks(request))
        blocks = self._answer(len(self.bills))
        self.requests.append(request)
        self.bills.append(bill)
        said = claude(*blocks, stop="tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn")
        said[0]["message"]["usage"] = {
            "input_tokens": bill.rest,
            "cache_read_input_tokens": bill.read,
            "cache_creation_input_tokens": bill.written,
            "output_tokens": 1,
        }
        self._note(said)
        yield [json.dumps(event).encode() for event in said]

    async def close(self) -> None:
        """Nothing to let go of."""

    def _charge(self, blocks: list[tuple[Json, bool]]) -> Bill:
        now = time.monotonic()
        self._kept = {key: until for key, until in self._kept.items() if until > now}
        beginnings: list[tuple[str, int]] = []  # hash and tokens up to each block
        chain, tokens = hashlib.sha256(), 0
        for block, _ in blocks:
            encoded = json.dumps(block, sort_keys=True).encode()
            chain.update(encoded)
            tokens += len(encoded) // 4
            beginnings.append((chain.hexdigest(), tokens))
        marked = [index for index, (_, is_marked) in enumerate(blocks) if is_marked]
        near = {index - back for index in marked for back in range(LOOKBACK_BLOCKS) if index >= back}
        read = max((beginnings[each][1] for each in near if beginnings[each][0] in self._kept), default=0)
        for index in marked:
            key, size = beginnings[index]
            if size >= LEAST_TOKENS:
                self._kept[key] = now + KEPT_S
        last = max((beginnings[each][1] for each in marked), default=0)
        last = last if last >= LEAST_TOKENS else 0
        return Bill(read, max(0, last - read), tokens - max(read, last))


def _blocks(request: Json) -> list[tuple[Json, bool]]:
    """All that is read, in order, and whether a breakpoint stands behind it."""
    found = [*request.get("tools", ()), *request.get("system", ())]
    for message in request["messages"]:
        found += [{"role": message["role"], **block} for block in message["content"]]
    return [
        ({name: value for name, value in block.items() if name != "cache_control"}, "cache_control" in block)
        for block in found
    ]


class BilledBackend(Anthropic):
    """The back end for Claude, with a `BillingClaude` behind it. `problems`: what it refused."""

    def __init__(self, server: BillingClaude) -> None:
        super().__init__("http://claude", "test", silence_s=lambda: 60.0)
        self._provider = cast(Any, server)
        self.problems = server.refused
