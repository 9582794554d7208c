"""OpenAI's Responses format: what its API is sent of a conversation.

Nothing is stored at the provider. What it thought comes back encrypted with each reply, and is sent again as
it came, with the words and calls that it belongs to.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from fairlead_agent.lru import LruCache
from fairlead_agent.models.interface import LoadedImage, ModelRequest, load_images
from fairlead_agent.tools.tool_lists import ToolSchema
from fairlead_common.protocol.content import (
    AssistantMessage,
    ContentBlock,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultMessage,
    blocks_of,
)

_KEPT: Final = "responses_format"  # name of what is kept of a conversation
_EMPTY: Final = "(nothing)"
_MAX_TOOL_LISTS: Final = 100

_encode = msgspec.json.encode
Wire = dict[str, object]
_tools: LruCache[int, tuple[Sequence[ToolSchema], bytes]] = LruCache(_MAX_TOOL_LISTS)  # by identity


def convert_to_llm(
    messages: Sequence[Message], images: Mapping[str, LoadedImage], ids: dict[str, str] | None = None
) -> list[list[Wire | msgspec.Raw]]:
    """The messages in this format; for each of `messages` the items that stand for it.

    Args:
        images: by name of the object, those of `messages`.
        ids: by call that came before, the id that it has in this format; those of `messages` are added.
    """
    ids = {} if ids is None else ids
    made: list[list[Wire | msgspec.Raw]] = []
    for message in messages:
        match message:
            case AssistantMessage():
                made.append(_reply(message, ids))
            case ToolResultMessage():
                call_id = ids.get(message.call_id) or message.provider_id or message.call_id
                output = _output(message.outcome.content, images)
                made.append([{"type": "function_call_output", "call_id": call_id, "output": output}])
            case _:
                parts = [_part(block, images) for block in blocks_of(message)]
                made.append([{"type": "message", "role": "user", "content": parts}])
    return made


def encode_tools(tools: Sequence[ToolSchema]) -> bytes:
    """What may be called, as JSON; the same list is encoded once."""
    known = _tools.get(id(tools))
    if known is None or known[0] is not tools:
        # Strict schemas would have to name every property as required.
        wires = [{"type": "function", **msgspec.structs.asdict(tool), "strict": False} for tool in tools]
        known = _tools.put(id(tools), (tools, _encode(wires)))
    return known[1]


async def encode_messages(request: ModelRequest) -> bytes:
    """The conversation of a request as JSON, joined by commas; only what is new is encoded."""
    kept = request.kept.get(_KEPT)
    if not isinstance(kept, _Encoded):
        kept = request.kept[_KEPT] = _Encoded()
    await kept.update(request)
    return b",".join(piece for piece in kept.pieces if piece)


class _Encoded:
    """The messages of a conversation as they were last encoded.

    Fields:
        pieces: JSON, one for each of `messages`; empty where nothing is sent.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pieces: list[bytes] = []
        self.ids: dict[str, str] = {}

    async def update(self, request: ModelRequest) -> None:
        pairs = enumerate(zip(self.messages, request.messages, strict=False))
        least = min(len(self.messages), len(request.messages))
        same = next((index for index, (a, b) in pairs if a is not b and a != b), least)
        new = request.messages[same:]
        images = await load_images(new, request.fetch)
        self.messages[same:] = new
        made = convert_to_llm(new, images, self.ids)
        self.pieces[same:] = [b",".join(map(_encode, items)) for items in made]


def _reply(message: AssistantMessage, ids: dict[str, str]) -> list[Wire | msgspec.Raw]:
    items: list[Wire | msgspec.Raw] = []
    content = list(message.content)
    while content and isinstance(content[-1], ThinkingBlock):  # refused without what followed it
        content.pop()
    for block in content:
        if isinstance(block, ToolCallBlock):
            ids[block.call_id] = block.provider_id or block.call_id
        if block.provider is not None:
            items += block.provider.items
            continue
        match block:
            case TextBlock(text=text) if text:
                words = [{"type": "output_text", "text": text}]
                items.append({"type": "message", "role": "assistant", "content": words})
            case ToolCallBlock(name=name, arguments=arguments):
                items.append(
                    {
                        "type": "function_call",
                        "call_id": ids[block.call_id],
                        "name": name,
                        "arguments": _encode(arguments or {}).decode(),
                    }
                )
            case TextBlock() | ThinkingBlock():  # thoughts of another model: they mean nothing to this one
                pass
    return items


def _output(content: Sequence[ContentBlock], images: Mapping[str, LoadedImage]) -> str | list[Wire]:
    parts = [_part(block, images) for block in content]
    if any(isinstance(block, ImageBlock) for block in content):
        return parts
    return "\n\n".join(str(part["text"]) for part in parts) or _EMPTY


def _part(block: ContentBlock, images: Mapping[str, LoadedImage]) -> Wire:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    image = images[block.object]
    if isinstance(image, str):
        return {"type": "input_text", "text": f"[image {block.name or block.object} is gone: {image}]"}
    data = base64.b64encode(image).decode()
    return {"type": "input_image", "image_url": f"data:{block.media_type};base64,{data}"}
