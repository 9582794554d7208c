"""What was said, with what was attached to it, as the model is shown it."""

from fairlead_common.bus.objects import Objects
from fairlead_common.errors import NotFoundError
from fairlead_common.protocol.content import ContentBlock, ImageBlock, TextBlock
from fairlead_common.protocol.messages import UserInput

INLINE_TEXT_BYTES = 64 * 1024  # a text attachment up to this size is put into the message itself


async def content_of(mail: UserInput, objects: Objects) -> list[ContentBlock]:
    """The words of a message with its attachments; a short text is put into the message itself."""
    content: list[ContentBlock] = [TextBlock(text=mail.text)]
    for attachment in mail.attachments:
        if attachment.media_type.startswith("image/"):
            content.append(
                ImageBlock(object=attachment.object, media_type=attachment.media_type, name=attachment.name)
            )
            continue
        text = f"[attached file {attachment.name}, {attachment.media_type}, {attachment.size_bytes} bytes]"
        if attachment.media_type.startswith("text/") and attachment.size_bytes <= INLINE_TEXT_BYTES:
            text = f"{text}\n{await _attached_text(attachment.object, objects)}"
        content.append(TextBlock(text=text))
    return content


async def _attached_text(name: str, objects: Objects) -> str:
    try:
        return (await objects.get(name)).decode("utf-8", "replace")
    except NotFoundError as error:
        return f"[it is gone: {error}]"
