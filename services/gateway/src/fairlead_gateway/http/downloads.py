"""Stored objects, attachments and long outputs, as downloads that no browser runs."""

from starlette.requests import Request
from starlette.responses import Response

from fairlead_common.errors import NotFoundError
from fairlead_common.protocol.ids import check_id
from fairlead_gateway.gateway import gateway_of
from fairlead_gateway.http.problems import Problem
from fairlead_gateway.http.request_parsing import check_parameters


async def download(request: Request) -> Response:
    """The bytes of one object."""
    check_parameters(request)
    name = check_id(request.path_params["object"], "object")
    try:
        data = await gateway_of(request).objects.get(name)
    except NotFoundError as error:
        raise Problem(404, str(error)) from error
    return Response(
        data,
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "Cache-Control": "no-store",
        },
    )
