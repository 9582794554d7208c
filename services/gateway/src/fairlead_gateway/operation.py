"""What the table of routes is made of: an address, what it takes and what it answers."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from starlette.requests import Request

RouteFunction = Callable[[Request], Awaitable[Any]]
Schema = dict[str, Any]

ID_PATTERN: Final = "^[A-Za-z0-9_-]{1,64}$"


class Parameter(NamedTuple):
    """A query parameter, a header, or a part of the path that is no plain id."""

    name: str
    schema: Schema
    text: str
    place: str = "query"


class Operation(NamedTuple):
    """One method of one address.

    Fields:
        answers: status to the type of the JSON body, or of the data of each server-sent event; a schema for
            what is not JSON; None for no body.
        body: Struct that the request body is decoded as.
        problems: statuses beside those that every address may answer with.
        kind: media type of the successful answer.
    """

    method: str
    path: str
    endpoint: RouteFunction
    text: str
    answers: dict[int, Any]
    body: type | None = None
    body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
    problems: tuple[int, ...] = ()
    public: bool = False
    kind: str = "application/json"
    details: str = ""
