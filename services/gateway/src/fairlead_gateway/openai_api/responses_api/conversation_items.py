"""The items of a conversation: what its responses were asked and answered, and what its client added."""

from typing import Final

import msgspec

from fairlead_common.errors import InvalidInputError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import new_id
from fairlead_gateway.gateway import Gateway
from fairlead_gateway.openai_api.responses_api.answered_item import input_item
from fairlead_gateway.openai_api.responses_api.conversation_store import AddedItem, StoredConversation
from fairlead_gateway.openai_api.responses_api.ids import MailKind, ResponseId
from fairlead_gateway.openai_api.responses_api.input_items import check_parts, words_in
from fairlead_gateway.openai_api.responses_api.item_pages import ShownItem
from fairlead_gateway.openai_api.responses_api.parameters import ResponseParameters, parameters_in
from fairlead_gateway.openai_api.responses_api.request import InputItem, InputPart
from fairlead_gateway.openai_api.responses_api.stored import StoredResponse, find_response, read_response

MOST_ADDED: Final = 20  # at once, as OpenAI has it
_ROLES: Final = ("user", "assistant", "system", "developer")
_KINDS: Final[tuple[MailKind, ...]] = ("prompt", "clientresult", "approval")


async def parameters_of(gateway: Gateway, session: str) -> list[tuple[ResponseId, ResponseParameters]]:
    """The responses of a session, in order, and what was asked of them."""
    found: list[tuple[int, ResponseId, ResponseParameters]] = []
    for kind in _KINDS:
        prefix = f"fairlead.session.{session}.in.{kind}."
        async for record in gateway.bus.read(subjects.SESSIONS, f"{prefix}>"):
            if (parameters := parameters_in(record.headers)) is not None:
                response = ResponseId(session, record.subject.removeprefix(prefix), kind)
                found.append((record.seq, response, parameters))
    return [(response, parameters) for _, response, parameters in sorted(found, key=lambda each: each[0])]


async def responses_of(gateway: Gateway, session: str) -> list[StoredResponse]:
    """The responses of a session, in order."""
    found = [await find_response(gateway, each) for each, _ in await parameters_of(gateway, session)]
    return [each for each in found if each is not None]


async def items_of(gateway: Gateway, session: str, kept: StoredConversation) -> list[ShownItem]:
    """All items that are shown, the oldest first."""
    items: list[ShownItem] = []
    before = 0
    for stored in await responses_of(gateway, session):
        upto = max(before, stored.parameters.added_seq)
        items += [shown(each) for each in kept.added if before < each.seq <= upto]
        before = upto
        items += _without_added(stored, [await input_item(gateway, stored)])
        fold = await read_response(gateway, stored, waits=False)
        items += [msgspec.to_builtins(each) for each in fold.output.items]
    items += [shown(each) for each in kept.added if each.seq > before]
    return [each for each in items if kept.shows(str(each["id"]))]


def _without_added(stored: StoredResponse, items: list[ShownItem]) -> list[ShownItem]:
    """The input without the words of added items, which are items of their own."""
    chars = stored.parameters.added_chars
    if chars and items and items[0].get("type") == "message":
        first, *more = items[0]["content"]
        rest = [{**first, "text": first["text"][chars:]}] if len(first["text"]) > chars else []
        items = [{**items[0], "content": [*rest, *more]}, *items[1:]]
        return items if rest or more else items[1:]
    return items


def shown(added: AddedItem) -> ShownItem:
    """An added item, as OpenAI writes it."""
    item = added.item
    kind = "output_text" if item.role == "assistant" else "input_text"
    parts = [InputPart(type=kind, text=item.content)] if isinstance(item.content, str) else item.content or []
    content = [
        {name: value for name, value in msgspec.to_builtins(part).items() if value is not None}
        for part in parts
    ]
    if item.role == "assistant":
        content = [{"annotations": [], **part} for part in content]
    return {"id": added.id, "type": "message", "role": item.role, "status": "completed", "content": content}


def checked(given: list[InputItem], *, has_begun: bool) -> list[InputItem]:
    """Items to be added, each with an id.

    Args:
        has_begun: the conversation has a session.

    Raises:
        InvalidInputError: they cannot be added.
    """
    if len(given) > MOST_ADDED:
        raise InvalidInputError("items", f"at most {MOST_ADDED}, got {len(given)}")
    roles = tuple(role for role in _ROLES if role != "assistant") if has_begun else _ROLES
    for index, item in enumerate(given):
        if item.type != "message":
            raise InvalidInputError(f"items[{index}].type", f"must be `message`, got {item.type[:80]!r}")
        if item.role not in roles:
            why = " in a conversation that has begun" if has_begun else ""
            allowed = ", ".join(roles)
            raise InvalidInputError(
                f"items[{index}].role", f"must be one of {allowed}{why}, got {item.role[:80]!r}"
            )
        check_parts(item)
        if not words_in(item).strip() and isinstance(item.content, str | None):
            raise InvalidInputError(f"items[{index}].content", "must not be empty")
    return [msgspec.structs.replace(item, id=f"msg_{new_id()}") for item in given]
