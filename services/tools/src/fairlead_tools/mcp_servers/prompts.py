"""Prompts of an MCP server, for people: which there are, the messages of one, and values of its arguments.

Part of what knows the SDK: see `sdk.py`.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import mcp_types
import pydantic
from mcp import MCPError
from mcp.client import Client

from fairlead_common.protocol.server_prompts import (
    MAX_ABOUT_CHARS,
    MAX_ARGUMENTS,
    MAX_NAME_CHARS,
    MAX_PICTURES,
    MAX_PROMPTS,
    MAX_SUGGESTIONS,
    MAX_VALUE_CHARS,
    PromptArgument,
    ServerPrompt,
)
from fairlead_tools.mcp_servers.mcp_results import PICTURES, decoded

MAX_PAGES: Final = 20
MAX_TEXT_CHARS: Final = 200_000  # of what the command line prints
LIST_S: Final = 10.0

_ROLES: Final = {"assistant": "[assistant]\n"}


class FilledPrompt(NamedTuple):
    """The messages of a prompt as one text, and the pictures among them with their media types."""

    text: str
    pictures: list[tuple[str, bytes]]


async def prompts_of(client: Client) -> list[ServerPrompt]:
    """All prompts that the server lists, at most 200; without the name of the server.

    Raises:
        MCPError: it refuses, or the connection broke.
    """
    if client.server_capabilities.prompts is None:
        return []
    completes = client.server_capabilities.completions is not None
    found: dict[str, ServerPrompt] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_prompts(cursor=cursor, cache_mode="refresh")
        for prompt in page.prompts:
            if _is_name(prompt.name):
                found.setdefault(prompt.name, _listed(prompt, completes=completes))
        cursor = page.next_cursor
        if cursor is None or len(found) >= MAX_PROMPTS:
            break
    return list(found.values())[:MAX_PROMPTS]


async def prompts_if_any(client: Client) -> list[ServerPrompt]:
    """The same; none if they cannot be listed: the tools of the server are offered all the same."""
    try:
        async with asyncio.timeout(LIST_S):
            return await prompts_of(client)
    except (MCPError, pydantic.ValidationError, TimeoutError):
        return []


def without_unreadable(prompts: list[Any]) -> list[Any]:
    """A listing without what is no prompt: the SDK would refuse the whole listing for it."""
    return [each for each in prompts if _is_readable(each)]


async def text_of_prompt(client: Client, name: str, arguments: Mapping[str, str]) -> str:
    """The prompt, filled in, as one text; at most 200,000 characters of it.

    Raises:
        MCPError: there is none of this name, or the arguments do not fit.
    """
    return (await filled(client, name, arguments)).text[:MAX_TEXT_CHARS]


async def filled(client: Client, name: str, arguments: Mapping[str, str]) -> FilledPrompt:
    """The messages of a prompt, filled in.

    Raises:
        MCPError: there is none of this name, or the arguments do not fit.
    """
    found = await client.get_prompt(name, dict(arguments))
    texts: list[str] = []
    pictures: list[tuple[str, bytes]] = []
    for message in found.messages:
        words = _words(message.content, pictures)
        if words:
            texts.append(f"{_ROLES.get(message.role, '')}{words}")
    return FilledPrompt("\n\n".join(texts), pictures)


async def suggestions(
    client: Client, name: str, arguments: Mapping[str, str], argument: str, value: str
) -> list[str]:
    """Values that the server suggests for an argument, at most 100; none if it suggests nothing.

    Args:
        arguments: the others, as far as they are filled in.

    Raises:
        MCPError: it refuses.
    """
    if client.server_capabilities.completions is None:
        return []
    found = await client.complete(
        mcp_types.PromptReference(type="ref/prompt", name=name),
        {"name": argument, "value": value},
        context_arguments=dict(arguments) or None,
    )
    fitting = [each for each in found.completion.values if len(each) <= MAX_VALUE_CHARS]
    return fitting[:MAX_SUGGESTIONS]


def _is_readable(prompt: object) -> bool:
    try:
        mcp_types.Prompt.model_validate(prompt, by_name=False)
    except pydantic.ValidationError:
        return False
    return True


def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()


def _listed(prompt: mcp_types.Prompt, *, completes: bool) -> ServerPrompt:
    arguments = [
        PromptArgument(
            name=each.name, description=_about(each.description or ""), required=bool(each.required)
        )
        for each in prompt.arguments or []
        if _is_name(each.name)
    ]
    return ServerPrompt(
        server="",
        name=prompt.name,
        description=_about(prompt.description or prompt.title or ""),
        arguments=arguments[:MAX_ARGUMENTS],
        completes=completes,
    )


def _about(text: str) -> str:
    """One line of what a server says, without what cannot be seen."""
    return "".join(sign for sign in " ".join(text.split()) if sign.isprintable())[:MAX_ABOUT_CHARS]


def _words(content: mcp_types.ContentBlock, pictures: list[tuple[str, bytes]]) -> str:
    """The text of a block; a picture is added to `pictures` instead."""
    match content:
        case mcp_types.TextContent(text=text):
            return text
        case mcp_types.ImageContent(data=data, mime_type=kind) if kind in PICTURES:
            picture = decoded(data) if len(pictures) < MAX_PICTURES else b""
            if not picture:
                return f"[a picture that is broken, over 16 MiB, or the {MAX_PICTURES + 1}th was left out]"
            pictures.append((kind, picture))
            return "[a picture, which is attached]"
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(uri=uri, text=text)):
            return f"[resource {uri}]\n{text}"
        case mcp_types.ResourceLink(uri=uri, name=name):
            return f"[resource {name}: {uri}]"
        case _:
            return f"[{content.type} was left out]"
