"""The conversation that a client sends, as one prompt: the last message, and what was said before it."""

import base64
import binascii
import re
from typing import Final, NamedTuple

from fairlead_common.bus.objects import Objects
from fairlead_common.errors import InvalidInputError
from fairlead_common.protocol.custom_entries import CHAT_EARLIER, CHAT_LAST
from fairlead_common.protocol.messages import MAX_TEXT_CHARS, Attachment, UserInput
from fairlead_gateway.openai_api.request import ChatMessage, Part

MAX_PICTURES: Final = 16  # of the messages before the last one; of more the latest are kept

_DATA_URL: Final = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)


class _Picture(NamedTuple):
    media_type: str
    data: bytes


async def prompt_of(objects: Objects, messages: list[ChatMessage], sender: str, *, whole: bool) -> UserInput:
    """The last message; with `whole` everything before it as its context, pictures included.

    Raises:
        InvalidInputError: the last message has nothing in it, or parts that are not supported.
    """
    place = len(messages) - 1
    text, pictures = _last(messages[place])
    if not text.strip():
        if not pictures:
            raise InvalidInputError(f"messages[{place}].content", "must not be empty")
        text = "(see the attached image)"
    if whole and place:
        earlier = [_earlier(message) for message in messages[:place]]
        shown = [picture for _, found in earlier for picture in found]
        pictures = [*shown[-MAX_PICTURES:], *pictures]
        words = [(m.role, said) for m, (said, _) in zip(messages, earlier, strict=False)]
        text = _with_context(words, text)
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidInputError("messages", f"at most {MAX_TEXT_CHARS} characters, got {len(text)}")
    attachments = [await _stored(objects, picture) for picture in pictures]
    return UserInput(text=text, attachments=attachments, sender=sender)


def words_of(message: ChatMessage) -> str:
    """All text of a message; other parts are named, and nothing of them is kept."""
    return _earlier(message)[0]


def _with_context(context: list[tuple[str, str]], text: str) -> str:
    parts = [f"[{role}]\n{words}" for role, words in context if words.strip()]
    if not parts:
        return text
    return "\n\n".join([CHAT_EARLIER, *parts, CHAT_LAST, text])


def _last(message: ChatMessage) -> tuple[str, list[_Picture]]:
    """Text and pictures of the message that is to be answered."""
    words: list[str] = []
    pictures: list[_Picture] = []
    for part in _parts(message):
        if part.type == "text":
            words.append(part.text or "")
        elif part.type == "image_url" and part.image_url is not None:
            pictures.append(_picture(part.image_url.url))
        else:
            raise InvalidInputError(
                "messages", f"parts of the last message must be `text` or `image_url`, got {part.type[:80]!r}"
            )
    return "\n".join(words), pictures


def _earlier(message: ChatMessage) -> tuple[str, list[_Picture]]:
    """Text and pictures of a message that was answered before: what cannot be kept is named in its place."""
    words: list[str] = []
    pictures: list[_Picture] = []
    for part in _parts(message):
        if part.type == "text":
            words.append(part.text or "")
        elif part.type == "refusal":
            words.append(part.refusal or "")
        elif part.type == "image_url" and part.image_url is not None:
            try:
                pictures.append(_picture(part.image_url.url))
                words.append("(an image, attached)")
            except InvalidInputError:
                words.append("(an image that is not attached)")
        else:
            words.append(f"(a part of the type {part.type[:80]} that is not attached)")
    return "\n".join(words), pictures


def _parts(message: ChatMessage) -> list[Part]:
    if isinstance(message.content, list):
        return message.content
    return [Part(type="text", text=message.content)] if message.content else []


def _picture(url: str) -> _Picture:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise InvalidInputError("image_url", "must be a data: URL with base64; other URLs are not fetched")
    try:
        return _Picture(match["type"], base64.b64decode(match["data"], validate=True))
    except binascii.Error as error:
        raise InvalidInputError("image_url", f"not base64: {error}") from error


async def _stored(objects: Objects, picture: _Picture) -> Attachment:
    name = f"image.{picture.media_type.partition('/')[2].partition('+')[0]}"
    stored = await objects.put(picture.data)
    return Attachment(object=stored, name=name, media_type=picture.media_type, size_bytes=len(picture.data))
