"""Six models, each behind a server as strict as its vendor and reached by the back end meant for it."""

import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, cast

import msgspec

from fairlead_agent.models.registry import Registry
from fairlead_common.config.document import Config
from tests.support import strict_responses
from tests.support.strict_chat import Reply, StrictChat
from tests.support.strict_model import StrictModel, claude
from tests.support.strict_responses import StrictResponses

WIRES: Final = {
    "chat": "openai/gpt-5",
    "responses": "codex/gpt-5.1",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "gemini": "gemini/gemini-3-flash-preview",
    "deepseek": "deepseek/deepseek-v4-pro",
    "openrouter": "openrouter/anthropic/claude-sonnet-4.5",
}
_VENDORS: Final = {"chat": "openai", "gemini": "gemini", "deepseek": "deepseek", "openrouter": "openrouter"}
Server = StrictChat | StrictModel | StrictResponses


class _Settings:
    """What a registry reads of the configuration."""

    def __init__(self, document: dict[str, object]) -> None:
        self.current = msgspec.convert(document, Config)


def registry_of(models: dict[str, object], environ: dict[str, str]) -> Registry:
    """The registry with this part `models` of the configuration, and these variables."""
    return Registry(cast(Any, _Settings({"models": models})), environ)


class Wires:
    """The servers by wire, and the registry that reaches them."""

    def __init__(self, servers: dict[str, Server]) -> None:
        self.servers = servers
        self._numbers = itertools.count(1)
        providers: dict[str, object] = {}
        for wire, server in servers.items():
            kind = wire if wire in ("responses", "anthropic") else "openai"
            name = WIRES[wire].partition("/")[0]
            providers[name] = {"kind": kind, "base_url": server.url, "api_key": {"from_env": "KEY"}}
        self.registry = registry_of({"providers": providers}, {"KEY": "test"})

    def prepare(self, wire: str, thought: str, words: str, *tools: str) -> None:
        """Let the model of a wire answer the next request so; it calls the tools, without arguments."""
        number, server = next(self._numbers), self.servers[wire]
        match server:
            case StrictChat():
                # The vendor's ids, and those of one that puts a thought into them.
                long = "_" + "x" * 80 if wire == "gemini" else ""
                calls = tuple((f"call_{number}_{index}{long}", name) for index, name in enumerate(tools))
                server.replies.append(Reply(thought, words, calls))
            case StrictModel():
                blocks: list[dict[str, Any]] = [
                    {"type": "thinking", "thinking": thought, "signature": f"sig{number}"},
                    {"type": "redacted_thinking", "data": f"hidden{number}"},
                    {"type": "text", "text": words},
                ]
                for index, name in enumerate(tools):
                    use = {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name, "input": {}}
                    blocks.append(use)
                stop = "tool_use" if tools else "end_turn"
                server.messages.append(
                    claude(*(each for each in blocks if each.get("text") != ""), stop=stop)
                )
            case StrictResponses():
                items = [strict_responses.reasoning(number, thought)]
                items += [strict_responses.message(number, words)] if words else []
                items += [
                    strict_responses.function_call(number * 100 + index, name, "{}")
                    for index, name in enumerate(tools)
                ]
                server.answers.append(strict_responses.events(*items))

    @property
    def refused(self) -> list[str]:
        """Why requests were answered with 400, of all servers."""
        return [f"{wire}: {each}" for wire, server in self.servers.items() for each in server.refused]


@asynccontextmanager
async def wires(*names: str) -> AsyncIterator[Wires]:
    """The servers of these wires, or of all."""
    async with AsyncExitStack() as stack:
        servers: dict[str, Server] = {}
        for wire in names or WIRES:
            made: Server = StrictChat(_VENDORS[wire]) if wire in _VENDORS else StrictModel()
            if wire == "responses":
                made = StrictResponses()
            servers[wire] = await stack.enter_async_context(made)
        found = Wires(servers)
        stack.push_async_callback(found.registry.close)
        yield found
