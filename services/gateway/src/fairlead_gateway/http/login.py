"""Logging in and out, and who one is."""

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fairlead_common.protocol.audit import AuditEntry
from fairlead_gateway.gateway import answering, gateway_of, principal_of
from fairlead_gateway.http import web_files
from fairlead_gateway.http.auth import PAGE_HEADER, Login, clear_cookie
from fairlead_gateway.http.problems import Problem, json_response
from fairlead_gateway.http.request_parsing import check_parameters, decode, one
from fairlead_gateway.identity.audit_writer import now_ms
from fairlead_gateway.identity.pairing import CODE, login_with
from fairlead_gateway.identity.principal import Principal
from fairlead_gateway.responses import Me


class TokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/login`."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


async def login_page(request: Request) -> Response:
    """With `?code=`: logged in, and off to `/`. Without: the page that asks for the token.

    The page finds its half of the login in the fragment, which browsers send to no server.
    """
    code = one(request, "code")
    if code is None:
        return await web_files.page(request)
    # A code is for a person who opens a link: an <img>, frame or fetch of any web page must not use one up.
    if request.method != "GET" or request.headers.get("sec-fetch-dest", "document") != "document":
        return web_files.plain("Open the login link as a page of its own, not inside another page.", 403)
    try:
        async with answering():
            gateway = gateway_of(request)
            if CODE.fullmatch(code):
                principal = await login_with(gateway, code, request.client.host if request.client else "")
            else:
                principal = await gateway.auth.redeem(code)
    except Problem as problem:
        return await _refused_link(request, problem)
    gateway_of(request).audit.note(
        AuditEntry(at=now_ms(), what="GET /login", who=principal.user, account=principal.account)
    )
    made = _login(request, principal)
    return _with_cookie(RedirectResponse(f"/#page={made.page}", 303), made)


async def _refused_link(request: Request, problem: Problem) -> Response:
    """The page that asks for the token and says that the link is used up; without a page, the words alone."""
    if problem.status == 401:
        page = await web_files.page(request)
        if page.status_code == 200:
            page.status_code = 401
            return page
    return web_files.plain(problem.message, problem.status, problem.headers)


async def login(request: Request) -> Response:
    """204, the cookie, and the header `X-Fairlead-Page` with the page's half of the login, for the token."""
    check_parameters(request)
    body = await decode(request, TokenBody)
    auth, address = gateway_of(request).auth, request.state.address
    async with answering():
        await auth.prepare(body.token, address)
    principal = auth.accept_token(body.token, address)
    request.state.audited_user = principal.user
    made = _login(request, principal)
    return _with_cookie(Response(status_code=204, headers={PAGE_HEADER: made.page}), made)


async def logout(request: Request) -> Response:
    """204: the cookie is gone, and good for nothing anywhere."""
    check_parameters(request)
    principal = principal_of(request)
    if principal.via == "cookie":
        async with answering():
            await gateway_of(request).auth.revoke(principal)
    response = Response(status_code=204)
    response.headers["Set-Cookie"] = clear_cookie(secure=request.state.secure)
    return response


async def me(request: Request) -> Response:
    """Who asks."""
    check_parameters(request)
    principal = principal_of(request)
    return json_response(
        Me(
            user=principal.user,
            scopes=sorted(principal.scopes),
            role=principal.role,
            account=principal.account,
        )
    )


def _login(request: Request, principal: Principal) -> Login:
    secure: bool = request.state.secure
    return gateway_of(request).auth.login(principal, secure=secure)


def _with_cookie(response: Response, made: Login) -> Response:
    response.headers["Set-Cookie"] = made.cookie
    response.headers["Cache-Control"] = "no-store"
    return response
