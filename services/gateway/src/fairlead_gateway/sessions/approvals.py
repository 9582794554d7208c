"""Approvals that wait for a person, and what the person says."""

import asyncio
import time
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fairlead_common.errors import ConflictError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import check_id
from fairlead_common.protocol.messages import Decision, DecisionKind
from fairlead_common.protocol.projections import Approval, ApprovalSummary
from fairlead_gateway.gateway import Gateway, answering, gateway_of, principal_of
from fairlead_gateway.http.problems import Problem, json_response
from fairlead_gateway.http.request_parsing import check_parameters, decode, one
from fairlead_gateway.responses import ApprovalList, Stored

LISTED_WITHIN_S = 1.0


class DecisionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/approvals/{id}`.

    Fields:
        shown_hash: of what the person saw; where it is given, another one in the list is a conflict.
    """

    decision: DecisionKind
    reason: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    shown_hash: Annotated[str, msgspec.Meta(max_length=128)] | None = None


async def listing(request: Request) -> Response:
    """Pending approvals, oldest first."""
    check_parameters(request, "session")
    session = one(request, "session")
    if session is not None:
        check_id(session, "session")
    found = gateway_of(request).index.approvals(session)
    return json_response(ApprovalList(approvals=[_shown(approval) for approval in found]))


async def decide(request: Request) -> Response:
    """202 once the decision is stored. The first one counts."""
    check_parameters(request)
    gateway = gateway_of(request)
    name = check_id(request.path_params["approval"], "approval")
    body = await decode(request, DecisionBody)
    approval = await _listed(gateway, name)
    if approval is None:
        if gateway.index.was_settled(name):
            raise Problem(409, f"approval {name} was already decided or has expired")
        raise Problem(404, f"approval {name} does not exist")
    if approval.expires_at and approval.expires_at <= time.time() * 1000:
        raise Problem(409, f"approval {name} has expired")
    if body.shown_hash is not None and body.shown_hash != approval.shown_hash:
        raise Problem(409, "shown_hash: does not match this approval; reload it and decide on what it shows")
    if body.decision in ("session", "always") and body.decision not in approval.grants:
        raise Problem(
            409, f"decision: must be `once` or `deny` here; {body.decision!r} is not offered for this call"
        )
    decision = Decision(
        approval_id=name,
        decision=body.decision,
        shown_hash=approval.shown_hash,
        reason=body.reason,
        sender=principal_of(request).user,
    )
    async with answering():
        await gateway.must_exist(approval.session)
        try:
            seq = await gateway.bus.create(
                subjects.SESSIONS,
                subjects.mail(approval.session, "approval", name),
                msgspec.json.encode(decision),
                point="gateway.approval",
            )
        except ConflictError:
            raise Problem(409, f"approval {name} was already decided") from None
    return json_response(Stored(seq=seq), 202)


async def _listed(gateway: Gateway, name: str) -> ApprovalSummary | None:
    """The approval, once the list shows it: who answers an event may be quicker than the list."""
    deadline = asyncio.get_running_loop().time() + LISTED_WITHIN_S
    while (approval := gateway.index.approval(name)) is None:
        if gateway.index.was_settled(name) or asyncio.get_running_loop().time() > deadline:
            return None
        await asyncio.sleep(0.02)
    return approval


def _shown(approval: ApprovalSummary) -> Approval:
    return Approval(**{name: getattr(approval, name) for name in Approval.__struct_fields__})
