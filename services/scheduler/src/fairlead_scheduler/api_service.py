"""Request-reply methods of a service, `fairlead.api.<method>`, as endpoints of a micro service.

JSON both ways. A refusal is an answer too: `{"error": {"code", "message", "field"}}`, with the headers that
micro services use for errors, so that `nats req` shows it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
import structlog

from fairlead_common.bus import Bus
from fairlead_common.bus.requests import SERVICE_ERROR, SERVICE_ERROR_CODE
from fairlead_common.errors import (
    ConflictError,
    FairleadError,
    InvalidInputError,
    NotFoundError,
    RetryableError,
)
from fairlead_common.protocol import subjects
from fairlead_common.received import Delivery
from fairlead_common.service.endpoints import Endpoint, serve

log = structlog.get_logger()

MAX_REQUESTS = 64  # at the same time; more wait
STOP_PATIENCE_S = 3.0
_HTTP = {"invalid": 400, "not_found": 404, "conflict": 409, "limit": 429, "disabled": 409, "unavailable": 503}


class LimitError(InvalidInputError):
    """There is no more room, or it comes too often."""


class Method(NamedTuple):
    """One method.

    Fields:
        body: struct of its request; an empty payload is an empty object.
        run: gets the decoded body; what it returns is written as JSON.
    """

    name: str
    body: type[Any]
    run: Callable[[Any], Awaitable[object]]


class ApiService:
    """The methods of one service. Its micro service is `fairlead-<service>-api`."""

    def __init__(self, bus: Bus, service: str, methods: list[Method]) -> None:
        self._bus = bus
        self._service = service
        self._methods = methods
        self._room = asyncio.Semaphore(MAX_REQUESTS)

    async def run(self, stop: asyncio.Event) -> None:
        """A part of the service: answer until `stop`; requests under way get a few seconds more."""
        endpoints = [self._endpoint(method) for method in self._methods]
        await serve(self._bus, f"{self._service}-api", endpoints, stop, patience_s=STOP_PATIENCE_S)

    def _endpoint(self, method: Method) -> Endpoint:
        async def answer(request: Delivery) -> None:
            await self._answer(method, request)

        return Endpoint(method.name.replace(".", "-"), subjects.api(method.name), answer)

    async def _answer(self, method: Method, request: Delivery) -> None:
        if not request.reply:
            return
        async with self._room:
            try:
                body = msgspec.json.decode(request.data or b"{}", type=method.body)
                data = msgspec.json.encode(await method.run(body))
                headers = None
            except Exception as error:  # noqa: BLE001 - whoever asked is told, whatever it was
                code, text, field = _refusal(method.name, error)
                refusal = {"code": code, "message": text, **({"field": field} if field else {})}
                data = msgspec.json.encode({"error": refusal})
                headers = {
                    SERVICE_ERROR_CODE: str(_HTTP.get(code, 500)),
                    SERVICE_ERROR: " ".join(text.split())[:500],
                }
        await self._bus.emit(request.reply, data, headers)


def _refusal(method: str, error: Exception) -> tuple[str, str, str]:
    match error:
        case LimitError():
            return "limit", error.problem, error.field
        case InvalidInputError():
            return "invalid", error.problem, error.field
        case msgspec.ValidationError():
            problem, _, where = str(error).partition(" - at `$.")
            return "invalid", problem, where.rstrip("`")
        case msgspec.DecodeError() | UnicodeDecodeError() | RecursionError():
            return "invalid", f"not JSON: {error}", ""
        case NotFoundError():
            return "not_found", str(error), ""
        case ConflictError():
            return "conflict", str(error.args[0]), ""
        case RetryableError():
            return "unavailable", str(error), ""
        case FairleadError():
            return "invalid", str(error), ""
        case _:
            log.error("request_failed", method=method, exc_info=error)
            return "internal", "internal error; see the log of the scheduler", ""
