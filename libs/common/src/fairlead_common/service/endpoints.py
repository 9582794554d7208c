"""Endpoints of a micro service whose work is done outside of the subscription's callback."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import NamedTuple

from nats.micro.request import Request

from fairlead_common.bus import Bus
from fairlead_common.received import Delivery
from fairlead_common.service.process import register, retire


class Endpoint(NamedTuple):
    """One endpoint. `answer` sends the reply itself, and raises nothing."""

    name: str
    subject: str
    answer: Callable[[Delivery], Coroutine[object, object, None]]
    metadata: dict[str, str] | None = None


async def serve(
    bus: Bus, name: str, endpoints: list[Endpoint], stop: asyncio.Event, *, patience_s: float
) -> None:
    """Answer as the micro service `fairlead-<name>` until `stop`; what runs then gets `patience_s` more."""
    running: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:

        def handler(endpoint: Endpoint) -> Callable[[Request], Awaitable[None]]:
            async def begin(request: Request) -> None:
                msg = request._msg  # noqa: SLF001 - `respond` hides where the reply goes, and waits for no connection
                asked = Delivery(msg.subject, msg.reply, msg.data, msg.headers or {})
                task = tasks.create_task(endpoint.answer(asked), name=f"{name}-{endpoint.name}")
                running.add(task)
                task.add_done_callback(running.discard)

            return begin

        micro = await register(bus, name, {})
        for endpoint in endpoints:
            await micro.add_endpoint(
                name=endpoint.name,
                handler=handler(endpoint),
                subject=endpoint.subject,
                metadata=endpoint.metadata,
            )
        await stop.wait()
        await retire(bus, micro)
        if running:
            await asyncio.wait(running, timeout=patience_s)
        for task in running:
            task.cancel()
