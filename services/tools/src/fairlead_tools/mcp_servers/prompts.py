"""Prompts of an MCP server, for people: which there are, and the text of one.

Part of what knows the SDK: see `sdk.py`.
"""

from collections.abc import Mapping
from typing import Final

import mcp_types
import msgspec
from mcp.client import Client

MAX_PAGES: Final = 20
MAX_TEXT_CHARS: Final = 200_000


class PromptArgument(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt is filled in with."""

    name: str
    description: str = ""
    required: bool = False


class McpPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as its server lists it."""

    name: str
    description: str = ""
    arguments: list[PromptArgument] = []


async def prompts_of(client: Client) -> list[McpPrompt]:
    """All prompts that the server lists.

    Raises:
        MCPError: it refuses, or the connection broke.
    """
    if client.server_capabilities.prompts is None:
        return []
    found: list[McpPrompt] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_prompts(cursor=cursor, cache_mode="refresh")
        found += map(_listed, page.prompts)
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


async def text_of_prompt(client: Client, name: str, arguments: Mapping[str, str]) -> str:
    """The prompt, filled in, as one text; at most 200,000 characters of it.

    Raises:
        MCPError: there is none of this name, or the arguments do not fit.
    """
    found = await client.get_prompt(name, dict(arguments))
    parts = [f"{_ROLES.get(each.role, '')}{_words(each.content)}" for each in found.messages]
    return "\n\n".join(parts)[:MAX_TEXT_CHARS]


_ROLES: Final = {"assistant": "[assistant]\n"}


def _listed(prompt: mcp_types.Prompt) -> McpPrompt:
    arguments = [
        PromptArgument(name=each.name, description=each.description or "", required=bool(each.required))
        for each in prompt.arguments or []
    ]
    return McpPrompt(
        name=prompt.name, description=prompt.description or prompt.title or "", arguments=arguments
    )


def _words(content: mcp_types.ContentBlock) -> str:
    match content:
        case mcp_types.TextContent(text=text):
            return text
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(uri=uri, text=text)):
            return f"[resource {uri}]\n{text}"
        case mcp_types.ResourceLink(uri=uri, name=name):
            return f"[resource {name}: {uri}]"
        case _:
            return f"[{content.type} was left out]"
