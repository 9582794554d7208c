"""Requests of other services, answered by any one agent process, each in a task of its own."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from fairlead_common.bus import Bus
from fairlead_common.received import Delivery


async def answer_until(
    stop: asyncio.Event,
    bus: Bus,
    subjects: Sequence[str],
    answer: Callable[[Delivery], Coroutine[object, object, None]],
) -> None:
    """Call `answer` for each request on one of the subjects that wants a reply, until `stop`."""
    asked: asyncio.Queue[Delivery] = asyncio.Queue()
    listening = [await bus.subscribe(subject, asked.put_nowait, queue="agents") for subject in subjects]
    async with asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(_take(asked, answer))
        await stop.wait()
        taking.cancel()
    for each in listening:
        await each.unsubscribe()


async def _take(
    asked: asyncio.Queue[Delivery], answer: Callable[[Delivery], Coroutine[object, object, None]]
) -> None:
    async with asyncio.TaskGroup() as tasks:
        while True:
            delivery = await asked.get()
            if delivery.reply:
                tasks.create_task(answer(delivery))
