"""What a response answers, as an item: rebuilt from its mail."""

import base64
from typing import Any

import msgspec

from fairlead_common.errors import NotFoundError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.client_tools import ClientResult
from fairlead_common.protocol.messages import Attachment
from fairlead_common.undecodable import UNDECODABLE
from fairlead_gateway.gateway import Gateway
from fairlead_gateway.openai_api.responses_api.ids import call_id_of
from fairlead_gateway.openai_api.responses_api.item_pages import ShownItem
from fairlead_gateway.openai_api.responses_api.stored import StoredResponse


async def input_item(gateway: Gateway, stored: StoredResponse) -> ShownItem:
    """The prompt, or the result of the client's tool that the response goes on with.

    Files are in it as attachments, unread: see `with_files`.
    """
    if stored.said is not None:
        content: list[Any] = [{"type": "input_text", "text": stored.said.text}, *stored.said.attachments]
        return {
            "id": stored.id.item("msg", 0).replace("msg_0", "msg_in", 1),
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": content,
        }
    return {
        "id": stored.id.item("fco", 0),
        "type": "function_call_output",
        "call_id": call_id_of(stored.id.session, stored.id.key),
        "output": await _result(gateway, stored),
        "status": "completed",
    }


async def with_files(gateway: Gateway, item: ShownItem) -> ShownItem:
    """The item as OpenAI writes it, with the bytes of its files."""
    return {name: await _read(gateway, value) for name, value in item.items()}


async def _read(gateway: Gateway, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [await _file(gateway, each) if isinstance(each, Attachment) else each for each in value]


async def _file(gateway: Gateway, file: Attachment) -> dict[str, Any]:
    try:
        data = base64.b64encode(await gateway.objects.get(file.object)).decode()
    except NotFoundError:
        data = ""
    url = f"data:{file.media_type};base64,{data}"
    if file.media_type.startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": url, "file_id": None}
    return {"type": "input_file", "filename": file.name, "file_data": url}


async def _result(gateway: Gateway, stored: StoredResponse) -> str | list[Any]:
    subject = subjects.mail(stored.id.session, stored.id.kind, stored.id.key)
    record = await gateway.bus.last(subjects.SESSIONS, subject)
    if record is None:
        return ""
    data = await gateway.objects.unpack(record.data, record.headers)
    try:
        result = msgspec.json.decode(data, type=ClientResult)
    except UNDECODABLE:
        return ""
    if not result.images:
        return result.text
    pictures = [
        Attachment(object=each.object, name=each.name or "", media_type=each.media_type)
        for each in result.images
    ]
    said = [{"type": "input_text", "text": result.text}] if result.text else []
    return [*said, *pictures]
