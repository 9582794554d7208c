"""What senders of the agent protocol may do now: those that act for a user, what that one may."""

from fairlead_common.protocol.request_info import Sender, actor_in
from fairlead_common.protocol.users import ADMIN, SCOPE_FOR, SCOPES_OF, Need
from fairlead_common.service.known_users import OWNER, stands_for
from fairlead_gateway.gateway import Gateway
from fairlead_gateway.http.problems import Problem
from fairlead_gateway.identity.principal import Principal
from fairlead_gateway.identity.session_access import check_session, still_sees


def principal_for(gateway: Gateway, sender: Sender, need: Need) -> Principal:
    """What a sender may do now.

    Raises:
        Problem: 403, the user for whom it acts may do nothing (any more).
    """
    actor = sender.actor
    if actor is None:
        return Principal(sender.name, frozenset({SCOPE_FOR[need]}), "nats", role=ADMIN)
    user = OWNER if actor.user == ADMIN else gateway.auth.directory.user(actor.user)
    if (why := stands_for(user, actor)) or user is None:
        raise Problem(403, f"{sender.name} acts for {actor.user}: {why}", code="forbidden")
    return Principal(
        user.name, SCOPES_OF[user.role], "nats", role=user.role, account=user.name, user_id=user.id
    )


async def checked_principal(gateway: Gateway, sender: Sender, session: str, need: Need) -> Principal:
    """Who sends something to a session, if they may.

    Raises:
        Problem: 403 or 404.
    """
    principal = principal_for(gateway, sender, need)
    if sender.actor is not None:
        await check_session(gateway, principal, session, need)
    return principal


def check_still_hears(gateway: Gateway, actor: str, session: str) -> None:
    """Nothing, or a refusal of what more there is of an answer.

    Args:
        actor: see `actor_text`.

    Raises:
        Problem: 403.
    """
    if not actor:
        return
    principal = principal_for(gateway, Sender("nats", actor_in(actor)), "read")
    if not (principal.may("read") and still_sees(gateway, principal, session)):
        raise Problem(403, f"session {session} is not shared with {principal.user} any more")
