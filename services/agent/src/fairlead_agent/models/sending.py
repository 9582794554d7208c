"""Has a request sent until a model takes it: without what it refuses, with another key if one is refused."""

import random
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from fairlead_agent.models.interface import ModelBackend, ModelError, ModelRequest
from fairlead_agent.models.mending import MAX_MENDS, mended
from fairlead_agent.models.reached import wrong_address
from fairlead_agent.models.registry import Registry

log = structlog.get_logger()

MAX_RETRY_DELAY_S: Final = 30.0

Read = Callable[[ModelBackend, ModelRequest], Awaitable[None]]


async def send(
    registry: Registry,
    name: str,
    session: str,
    request: ModelRequest,
    read: Read,
    is_begun: Callable[[], bool],
    *,
    is_waited_for: bool = False,
) -> None:
    """Have `read` send the request and read its reply.

    Args:
        name: of the model. session: whose key is used, where its provider has several.
        is_begun: whether a part of the reply came, or none is wanted any more: it is not sent again.
        is_waited_for: its provider was away before, and is waited for.

    Raises:
        ModelError: the model does not answer that either. A provider that has never answered does not pass.
    """
    address = registry.address(name)
    try:
        await _mended(registry, name, session, request, read, is_begun)
    except ModelError as error:
        if address is None:
            raise
        if not error.unreached:
            await registry.reached.note(address)
            raise
        passes = error.kind == "retryable" and (is_waited_for or await registry.reached.ever(address))
        if passes:
            raise
        raise wrong_address(address, error) from error
    if address is not None:
        await registry.reached.note(address)


async def _mended(
    registry: Registry,
    name: str,
    session: str,
    request: ModelRequest,
    read: Read,
    is_begun: Callable[[], bool],
) -> None:
    mends = registry.mending.of(name)
    for left in reversed(range(MAX_MENDS + 1)):
        try:
            await _with_a_key(registry, name, session, mended(request, mends), read, is_begun)
        except ModelError as error:
            learnt = registry.mending.learnt(name, request, mends, error)
            if learnt is None or not left or is_begun():
                raise
            log.info("request_mended", model=name, error=str(error)[:300])
            mends = learnt
        else:
            return


async def _with_a_key(
    registry: Registry,
    name: str,
    session: str,
    request: ModelRequest,
    read: Read,
    is_begun: Callable[[], bool],
) -> None:
    while True:
        model, key = await registry.for_session(name, session)
        try:
            await read(model, request)
        except ModelError as error:
            if not await registry.refused(key, error) or is_begun():
                raise
        else:
            return


def pause_s(error: ModelError, attempt: int) -> float:
    """Seconds until a request is sent again: more each time, and no fewer than the provider asks for."""
    delay_s: float = min(0.5 * 2**attempt, MAX_RETRY_DELAY_S) * random.uniform(0.8, 1.2)  # noqa: S311
    return round(max(delay_s, error.retry_after_s or 0), 2)
