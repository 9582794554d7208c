"""The conversation that a client sends, as one prompt: the last message, and what was said before it."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from fairlead_common.bus.objects import Objects
from fairlead_common.errors import InvalidInputError
from fairlead_common.protocol.custom_entries import CHAT_EARLIER, CHAT_LAST
from fairlead_common.protocol.messages import MAX_ATTACHMENTS, MAX_TEXT_CHARS, Attachment, UserInput
from fairlead_gateway.openai_api.request import ChatMessage, Part

MAX_EARLIER: Final = 16  # files of the messages before the last one; of more the latest are kept

_DATA_URL: Final = re.compile(
    r"data:(?P<type>[\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,]*)*;base64,(?P<data>.*)", re.DOTALL
)
_UNKNOWN: Final = "application/octet-stream"
_KINDS: Final = {"image_url": "an image", "file": "a file", "input_audio": "an input_audio recording"}


class _Sent(NamedTuple):
    """A file that came with a message."""

    name: str
    media_type: str
    data: bytes


async def prompt_of(objects: Objects, messages: list[ChatMessage], sender: str, *, whole: bool) -> UserInput:
    """The last message; with `whole` everything before it as its context, files and pictures included.

    Raises:
        InvalidInputError: the last message has nothing in it, or parts that are not supported.
    """
    place = len(messages) - 1
    text, files = _last(messages[place])
    if not text.strip():
        if not files:
            raise InvalidInputError(f"messages[{place}].content", "must not be empty")
        text = "(see what is attached)"
    if len(files) > MAX_ATTACHMENTS:
        raise InvalidInputError(
            f"messages[{place}].content", f"at most {MAX_ATTACHMENTS} files and images, got {len(files)}"
        )
    if whole and place:
        earlier = [_earlier(message) for message in messages[:place]]
        shown = [file for _, found in earlier for file in found]
        room = min(MAX_EARLIER, MAX_ATTACHMENTS - len(files))
        files = [*(shown[-room:] if room else []), *files]
        words = [(m.role, said) for m, (said, _) in zip(messages, earlier, strict=False)]
        text = _with_context(words, text)
    if len(text) > MAX_TEXT_CHARS:
        raise InvalidInputError("messages", f"at most {MAX_TEXT_CHARS} characters, got {len(text)}")
    attachments = [await _stored(objects, file) for file in files]
    return UserInput(text=text, attachments=attachments, sender=sender)


def words_of(message: ChatMessage) -> str:
    """All text of a message; other parts are named, and nothing of them is kept."""
    return _earlier(message)[0]


def _with_context(context: list[tuple[str, str]], text: str) -> str:
    parts = [f"[{role}]\n{words}" for role, words in context if words.strip()]
    if not parts:
        return text
    return "\n\n".join([CHAT_EARLIER, *parts, CHAT_LAST, text])


def _last(message: ChatMessage) -> tuple[str, list[_Sent]]:
    """Text and files of the message that is to be answered."""
    words: list[str] = []
    files: list[_Sent] = []
    for part in _parts(message):
        if part.type == "text":
            words.append(part.text or "")
        elif part.type in _KINDS:
            files.append(_sent(part))
        else:
            raise InvalidInputError(
                "messages",
                f"parts of the last message must be `text`, {', '.join(f'`{kind}`' for kind in _KINDS)}, "
                f"got {part.type[:80]!r}",
            )
    return "\n".join(words), files


def _earlier(message: ChatMessage) -> tuple[str, list[_Sent]]:
    """Text and files of a message that was answered before: what cannot be kept is named in its place."""
    words: list[str] = []
    files: list[_Sent] = []
    for part in _parts(message):
        if part.type == "text":
            words.append(part.text or "")
        elif part.type == "refusal":
            words.append(part.refusal or "")
        elif kind := _KINDS.get(part.type):
            try:
                files.append(_sent(part))
                words.append(f"({kind}, attached)")
            except InvalidInputError:
                words.append(f"({kind} that is not attached)")
        else:
            words.append(f"(a part of the type {part.type[:80]} that is not attached)")
    return "\n".join(words), files


def _parts(message: ChatMessage) -> Iterator[Part]:
    if isinstance(message.content, list):
        yield from message.content
    elif message.content:
        yield Part(type="text", text=message.content)


def _sent(part: Part) -> _Sent:
    """What a part carries that is no text.

    Raises:
        InvalidInputError: it carries nothing that can be had; the text names its field.
    """
    match part.type:
        case "image_url":
            url = part.image_url.url if part.image_url else ""
            media_type, data = _from_url("image_url", url)
            extension = media_type.partition("/")[2].partition("+")[0]
            return _Sent(f"image.{extension}", media_type, data)
        case "input_audio":
            said = part.input_audio
            kind = (said.format if said and said.format else "wav")[:16]
            if said is None or not said.data:
                raise InvalidInputError("input_audio.data", "must have the recording in base64")
            data = _decoded("input_audio.data", said.data)
            return _Sent(f"recording.{kind}", "audio/mpeg" if kind == "mp3" else f"audio/{kind}", data)
        case _:
            file = part.file
            if file is None or not file.file_data:
                raise InvalidInputError(
                    "file.file_data",
                    "must have the file in base64; a `file_id` is not supported",
                )
            name = (file.filename or "")[:255]
            if file.file_data.startswith("data:"):
                return _Sent(name, *_from_url("file.file_data", file.file_data))
            return _Sent(name, _UNKNOWN, _decoded("file.file_data", file.file_data))


def _from_url(field: str, url: str) -> tuple[str, bytes]:
    match = _DATA_URL.fullmatch(url)
    if match is None:
        raise InvalidInputError(field, "must be a data: URL with base64; other URLs are not fetched")
    return match["type"] or _UNKNOWN, _decoded(field, match["data"])


def _decoded(field: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInputError(field, f"not base64: {error}") from error


async def _stored(objects: Objects, file: _Sent) -> Attachment:
    stored = await objects.put(file.data)
    return Attachment(object=stored, name=file.name, media_type=file.media_type, size_bytes=len(file.data))
