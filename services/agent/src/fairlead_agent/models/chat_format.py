"""OpenAI's chat format: what servers that speak it, and litellm, are sent of a conversation."""

import base64
from collections.abc import Mapping, Sequence

import msgspec

from fairlead_agent.lru import LruCache
from fairlead_agent.models.interface import LoadedImage, ModelRequest, load_images
from fairlead_agent.tools.tool_lists import ToolSchema
from fairlead_common.protocol.content import (
    AssistantMessage,
    ContentBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResultMessage,
    UserMessage,
)

RESULT_IMAGES = "Images of the tool results above:"
_KEPT = "chat_format"  # name of what is kept of a conversation

_MAX_TOOL_LISTS = 100

_encode = msgspec.json.encode
Wire = dict[str, object]
_tools: LruCache[int, tuple[Sequence[ToolSchema], bytes]] = LruCache(_MAX_TOOL_LISTS)  # by identity


def convert_to_llm(
    messages: Sequence[Message], images: Mapping[str, LoadedImage], ids: dict[str, str] | None = None
) -> list[list[Wire]]:
    """The messages in this format; for each of `messages` those that stand for it.

    No provider takes images in role `tool`: they follow all results of the turn, in a message of the user.

    Args:
        messages: what is shown; all results of a turn must be among them.
        images: by name of the object, those of `messages`.
        ids: by call that came before, the id that it has in this format; those of `messages` are added.
    """
    ids = {} if ids is None else ids
    made: list[list[Wire]] = []
    following: list[Wire] = []  # images of the results of this turn
    for index, message in enumerate(messages):
        match message:
            case UserMessage(content=content):
                parts = [_part(block, images) for block in content]
                made.append([{"role": "user", "content": _content(parts)}])
            case AssistantMessage():
                made.append([_reply(message, ids)])
            case ToolResultMessage():
                wire, shown = _result(message, images, ids)
                made.append([wire])
                following += shown
                if following and not _is_result(messages, index + 1):
                    made[-1].append({"role": "user", "content": [_text(RESULT_IMAGES), *following]})
                    following = []
    return made


def convert_tools(tools: Sequence[ToolSchema]) -> list[Wire]:
    """What may be called, in this format."""
    return [{"type": "function", "function": msgspec.structs.asdict(tool)} for tool in tools]


def encode_tools(tools: Sequence[ToolSchema]) -> bytes:
    """What may be called, as JSON; the same list is encoded once."""
    known = _tools.get(id(tools))
    if known is None or known[0] is not tools:
        known = _tools.put(id(tools), (tools, _encode(convert_tools(tools))))
    return known[1]


async def encode_messages(request: ModelRequest) -> bytes:
    """The conversation of a request as JSON, joined by commas; only what is new is encoded."""
    kept = request.kept.get(_KEPT)
    if not isinstance(kept, _Encoded):
        kept = request.kept[_KEPT] = _Encoded()
    await kept.update(request)
    system = [_encode({"role": "system", "content": request.system})] if request.system else []
    return b",".join([*system, *kept.pieces])


class _Encoded:
    """The messages of a conversation as they were last encoded.

    Fields:
        pieces: JSON, one for each of `messages`.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.pieces: list[bytes] = []
        self.ids: dict[str, str] = {}

    async def update(self, request: ModelRequest) -> None:
        messages = request.messages
        same = _same(self.messages, messages)
        new = messages[same:]
        images = await load_images(new, request.fetch)
        del self.messages[same:], self.pieces[same:]
        for message, wires in zip(new, convert_to_llm(new, images, self.ids), strict=True):
            self.messages.append(message)
            self.pieces.append(b",".join(map(_encode, wires)))


def _same(known: list[Message], messages: Sequence[Message]) -> int:
    """How many of the messages are as they were, up to the end of a turn's results."""
    if known == messages[: len(known)]:
        same = len(known)
    else:
        pairs = enumerate(zip(known, messages, strict=False))
        same = next((index for index, (a, b) in pairs if a != b), min(len(known), len(messages)))
    if _is_result(messages, same) or _is_result(known, same):  # what follows results depends on all of them
        while same and _is_result(messages, same - 1):
            same -= 1
    return same


def _is_result(messages: Sequence[Message], index: int) -> bool:
    return index < len(messages) and isinstance(messages[index], ToolResultMessage)


def _reply(message: AssistantMessage, ids: dict[str, str]) -> Wire:
    # A reply without words has calls; one without both comes from a client, and null would be refused.
    wire: Wire = {"role": "assistant", "content": message.text or (None if message.tool_calls else "")}
    if calls := message.tool_calls:
        ids.update({call.call_id: call.provider_id or call.call_id for call in calls})
        wire["tool_calls"] = [
            {
                "id": ids[call.call_id],
                "type": "function",
                "function": {"name": call.name, "arguments": _encode(call.arguments).decode()},
            }
            for call in calls
        ]
    if thoughts := [_thought(block) for block in message.content if isinstance(block, ThinkingBlock)]:
        wire["thinking_blocks"] = thoughts
    return wire


def _thought(block: ThinkingBlock) -> Wire:
    if block.redacted is not None:
        return {"type": "redacted_thinking", "data": block.redacted}
    return {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _result(
    message: ToolResultMessage, images: Mapping[str, LoadedImage], ids: Mapping[str, str]
) -> tuple[Wire, list[Wire]]:
    """The result, and what follows it."""
    call_id = ids.get(message.call_id) or message.provider_id or message.call_id
    parts = [_part(block, images) for block in message.outcome.content]
    shown = [part for part in parts if _is_image(part)]
    words = _joined([_text("[image: it follows]") if _is_image(part) else part for part in parts])
    following = [_text(f"Of {message.name}, {call_id}:"), *shown] if shown else []
    return {"role": "tool", "tool_call_id": call_id, "content": words}, following


def _part(block: ContentBlock, images: Mapping[str, LoadedImage]) -> Wire:
    if isinstance(block, TextBlock):
        return _text(block.text)
    image = images[block.object]
    if isinstance(image, str):
        return _text(f"[image {block.name or block.object} is gone: {image}]")
    data = base64.b64encode(image).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{data}"}}


def _content(parts: list[Wire]) -> str | list[Wire]:
    return parts if any(map(_is_image, parts)) else _joined(parts)


def _text(words: str) -> Wire:
    return {"type": "text", "text": words}


def _is_image(part: Wire) -> bool:
    return part["type"] == "image_url"


def _joined(parts: list[Wire]) -> str:
    return "\n\n".join(str(part["text"]) for part in parts)
