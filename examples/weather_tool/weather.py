"""A tool over NATS: the weather in a city, made up."""

import asyncio
from typing import Annotated

from msgspec import Meta

from fairlead_sdk import Call, ToolError, ToolServer, tool

CELSIUS = {"Bergen": 9, "Cadiz": 24, "Leith": 12}


@tool(read_only=True, parallel=True, flags=[])
async def now(
    city: Annotated[str, Meta(min_length=1, description="Name of the city.")], call: Call
) -> dict[str, object]:
    """The weather in a city, now."""
    await call.progress(f"looking at the sky over {city}")
    if city not in CELSIUS:
        raise ToolError(f"city: must be one of {', '.join(CELSIUS)}, got {city!r}")
    return {"city": city, "celsius": CELSIUS[city]}


if __name__ == "__main__":
    asyncio.run(ToolServer("weather", [now]).run())
