"""Logging in and out, and who one is."""

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fairlead_gateway import pages
from fairlead_gateway.auth import Principal, clear_cookie
from fairlead_gateway.bodies import check_parameters, decode, one
from fairlead_gateway.gateway import answering, gateway_of, principal_of
from fairlead_gateway.problems import Problem, json_response


class TokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/login`."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]


async def login_page(request: Request) -> Response:
    """With `?code=`: logged in, and off to `/`. Without: the page that asks for the token."""
    code = one(request, "code")
    if code is None:
        return await pages.page(request)
    # A code is for a person who opens a link: an <img>, frame or fetch of any web page must not use one up.
    if request.method != "GET" or request.headers.get("sec-fetch-dest", "document") != "document":
        return pages.plain("A login link has to be opened as a page of its own.", 403)
    try:
        async with answering():
            principal = await gateway_of(request).auth.redeem(code)
    except Problem as problem:
        return pages.plain(problem.message, problem.status, problem.headers)
    response = RedirectResponse("/", 303)
    _set_cookie(request, response, principal)
    return response


async def login(request: Request) -> Response:
    """204 and the cookie, for the token."""
    check_parameters(request)
    body = await decode(request, TokenBody)
    principal = gateway_of(request).auth.accept_token(body.token, request.state.address)
    response = Response(status_code=204)
    _set_cookie(request, response, principal)
    return response


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
    return json_response({"user": principal.user, "scopes": sorted(principal.scopes)})


def _set_cookie(request: Request, response: Response, principal: Principal) -> None:
    secure: bool = request.state.secure
    response.headers["Set-Cookie"] = gateway_of(request).auth.cookie_for(principal, secure=secure)
    response.headers["Cache-Control"] = "no-store"
