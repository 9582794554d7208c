"""Conversations: sessions by their name, as far as the SDKs' parameter `conversation` needs them.

One is made by its first response, for only that says which agent it is with; its id is given out before.
"""

import time
from typing import Annotated, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fairlead_common.protocol.ids import new_id
from fairlead_common.protocol.users import Need
from fairlead_gateway.gateway import answering, gateway_of, principal_of
from fairlead_gateway.http.problems import Problem, json_response
from fairlead_gateway.http.request_parsing import check_parameters, decode
from fairlead_gateway.identity.session_access import check_session
from fairlead_gateway.openai_api.responses_api.ids import conversation_id_of, parse_conversation_id
from fairlead_gateway.operation import Operation, Parameter
from fairlead_gateway.sessions.session_lookup import summary_of
from fairlead_gateway.sessions.sessions import ask_to_delete


class NewConversation(msgspec.Struct, frozen=True):
    """Body of `POST /v1/conversations`: empty, since nothing is stored before the first response."""

    items: Annotated[list[dict[str, object]], msgspec.Meta(max_length=0)] | None = None
    metadata: Annotated[dict[str, str], msgspec.Meta(max_length=0)] | None = None


class ConversationObject(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation. `created_at`: seconds since 1970."""

    id: str
    created_at: int
    metadata: dict[str, str] = {}
    object: Literal["conversation"] = "conversation"


class DeletedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation whose session is being deleted."""

    id: str
    deleted: bool = True
    object: Literal["conversation.deleted"] = "conversation.deleted"


async def create(request: Request) -> Response:
    """The id of a new conversation."""
    check_parameters(request)
    await decode(request, NewConversation, default=NewConversation())
    return json_response(ConversationObject(id=conversation_id_of(new_id()), created_at=int(time.time())))


async def retrieve(request: Request) -> Response:
    """A conversation that has a response."""
    check_parameters(request)
    async with answering():
        session = await _named(request, "read")
        summary = await summary_of(gateway_of(request), session)
    identity = conversation_id_of(session)
    return json_response(ConversationObject(id=identity, created_at=summary.created_at // 1000))


async def delete(request: Request) -> Response:
    """The session of a conversation is deleted, with all of its responses."""
    check_parameters(request)
    gateway, sender = gateway_of(request), principal_of(request).user
    async with answering():
        session = await _named(request, "manage")
        await ask_to_delete(gateway, session, sender, await gateway.must_exist(session))
    return json_response(DeletedConversation(id=conversation_id_of(session)))


async def _named(request: Request, need: Need) -> str:
    """The session of the address, for callers who may do this with it."""
    text = request.path_params["conversation"]
    session = parse_conversation_id(text)
    if session is None:
        raise Problem(404, f"there is no conversation {text[:200]!r}")
    gateway = gateway_of(request)
    await check_session(gateway, principal_of(request), session, need)
    await gateway.must_exist(session)
    return session


_CONVERSATION: Final = Parameter(
    "conversation",
    {"type": "string", "pattern": r"^conv_[A-Za-z0-9_-]{1,64}$"},
    "id of a conversation",
    "path",
)

OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "POST",
        "/v1/conversations",
        create,
        "the id of a new conversation, which begins with its first response",
        {200: ConversationObject},
        body=NewConversation,
        body_required=False,
        scope="write",
    ),
    Operation(
        "GET",
        "/v1/conversations/{conversation}",
        retrieve,
        "a conversation that has begun",
        {200: ConversationObject},
        parameters=(_CONVERSATION,),
        problems=(404,),
        scope="read",
    ),
    Operation(
        "DELETE",
        "/v1/conversations/{conversation}",
        delete,
        "the session of a conversation is deleted, with all of its responses",
        {200: DeletedConversation},
        parameters=(_CONVERSATION,),
        problems=(404,),
        scope="write",
    ),
)
