"""Server-sent events, read from lines."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec


class Event(NamedTuple):
    """One event of a session; docs/api.md lists the types.

    Fields:
        id: position of the stream, to resume from.
        data: its JSON, as `SessionEvent` in OpenAPI.
    """

    id: str
    type: str
    data: dict[str, Any]


async def parse_events(lines: AsyncIterator[str]) -> AsyncIterator[Event]:
    """The events in a stream of lines. Comments and unfinished events are left out."""
    name, identity, data = "", "", list[str]()
    async for line in lines:
        if not line:
            if data:
                body = msgspec.json.decode("\n".join(data), type=dict[str, Any])
                yield Event(identity, str(body.get("type") or name), body)
            name, data = "", []
        elif not line.startswith(":"):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "event":
                    name = value
                case "id":
                    identity = value
                case "data":
                    data.append(value)
                case _:
                    pass
