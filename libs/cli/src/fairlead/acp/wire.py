"""The JSON-RPC messages of one connection, with what the SDK does not show: ids, and what was answered."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final

Json = dict[str, Any]

REQUEST_ID: Final = "fairlead_request_id"  # in `_meta`, from where the SDK makes it an argument of the method
CANCEL_REQUEST: Final = "$/cancel_request"
MAX_MESSAGE_BYTES: Final = 128 << 20
_MAX_SEND_S: Final = 600.0  # an editor may be stopped in a debugger, or asleep

_asked: ContextVar[list[int | str] | None] = ContextVar("asked", default=None)


class MessagePipe:
    """A transport of the SDK over two pipes, one JSON document a line.

    Requests of the client get their id as an argument. What is to happen after an answer was sent is done
    then, and a request of ours can be taken back.

    Args:
        on_cancel: is told the id of a request that the client takes back.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_cancel: Callable[[int | str], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._on_cancel = on_cancel
        self._after: dict[str, list[Callable[[], None]]] = {}

    async def receive(self) -> Json | None:
        """The next message; None at the end of the input."""
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:  # it says no more of a line that is longer than the limit
                await self._refuse(f"a message has at most {MAX_MESSAGE_BYTES} bytes")
                continue
            if not line:
                return None
            if line.strip() and (message := await self._parsed(line)) is not None:
                return message

    async def _parsed(self, line: bytes) -> Json | None:
        """The message in a line; None if it is none, or was acted on here."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            await self._refuse(f"no JSON: {error}")
            return None
        if not isinstance(message, dict):
            await self._refuse("a message is an object")
            return None
        params = message.get("params")
        if message.get("method") == CANCEL_REQUEST:
            if isinstance(params, dict) and isinstance(params.get("requestId"), int | str):
                self._on_cancel(params["requestId"])
            return None
        if "method" in message and isinstance(params, dict):
            # The SDK makes arguments of what is in it, also such as have the names of others.
            params.pop("_meta", None)
            if "id" in message:
                params["_meta"] = {REQUEST_ID: message["id"]}
        return message

    async def _refuse(self, problem: str) -> None:
        logging.warning("a message could not be read: %s", problem)
        error = {"code": -32700, "message": f"Parse error: {problem}"}
        await self.send({"jsonrpc": "2.0", "id": None, "error": error})

    async def send(self, message: Json) -> None:
        """Send a message, and do what was to follow it.

        Raises:
            ConnectionError: the client is gone.
            TimeoutError: it reads nothing.
        """
        if "method" in message and "id" in message and (asked := _asked.get()) is not None:
            asked.append(message["id"])
        self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        async with asyncio.timeout(_MAX_SEND_S):
            await self._writer.drain()
        if "method" not in message:
            for follow in self._after.pop(_key(message.get("id")), []):
                follow()

    async def close(self) -> None:
        """See `Transport` of the SDK."""
        self._writer.close()

    def after_answer(self, request: object, follow: Callable[[], None]) -> None:
        """Call `follow` once the request of the client with this id was answered."""
        self._after.setdefault(_key(request), []).append(follow)

    @contextlib.contextmanager
    def noting_requests(self) -> Iterator[list[int | str]]:
        """The ids of the requests that are sent within."""
        asked: list[int | str] = []
        before = _asked.set(asked)
        try:
            yield asked
        finally:
            _asked.reset(before)

    async def take_back(self, request: int | str) -> None:
        """Tell the client that the answer to a request of ours is not needed any more."""
        await self.send({"jsonrpc": "2.0", "method": CANCEL_REQUEST, "params": {"requestId": request}})


def _key(request: object) -> str:
    return json.dumps(request)
