"""An open channel to a runner: frames out, frames in, sorted by the call they are about."""

import asyncio
import contextlib
from types import TracebackType
from typing import Any

import structlog

from fairlead_common.errors import RetryableError
from fairlead_tools.runner import protocol

log = structlog.get_logger()

GREETING_TIMEOUT_S = 10.0

Frame = dict[str, Any]

# All that can end a stream: the peer, or what it sends.
_ENDINGS = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, protocol.FrameError)


class ChannelLostError(RetryableError):
    """The runner went away, or does not speak our protocol."""


class Channel:
    """Frames over one pair of streams. Open it with `Channel.open`; one task reads for all calls.

    `features` tells what the runner says of its restrictions (`runner/confinement/restrict.py`), `pid` which
    process it is where it runs; 0 when it does not say.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[str, asyncio.Queue[Frame | None]] = {}
        self._reading: asyncio.Task[None] | None = None
        self.lost = False
        self.features: Frame = {}
        self.pid = 0

    async def open(self, tasks: asyncio.TaskGroup) -> "Channel":
        """Greet the runner and begin to read, in `tasks`.

        Raises:
            ChannelLostError: it does not answer as it should.
        """
        try:
            async with asyncio.timeout(GREETING_TIMEOUT_S):
                self._writer.write(protocol.encode({"op": "hello", "version": protocol.VERSION}))
                await self._writer.drain()
                answer = protocol.decode(await self._reader.readuntil(b"\n"))
        except (*_ENDINGS, TimeoutError) as error:
            self.close()
            raise ChannelLostError(f"the runner did not greet: {error}") from error
        if answer.get("type") != "hello":
            self.close()
            raise ChannelLostError(f"the runner refused: {answer.get('message', answer)}")
        features = answer.get("features")
        self.features = features if isinstance(features, dict) else {}
        pid = answer.get("pid")
        self.pid = pid if isinstance(pid, int) and pid > 1 else 0
        self._reading = tasks.create_task(self._read(), name="runner")
        return self

    def close(self) -> None:
        """Part with the runner; what it runs goes on."""
        if self._reading is not None:
            self._reading.cancel()
        self._lose()

    def follow(self, call_id: str) -> "CallFrames":
        """The frames about one call, as a context manager."""
        return CallFrames(self, call_id)

    async def send(self, frame: Frame) -> None:
        """Send one frame.

        Raises:
            ChannelLostError: the runner is gone.
        """
        if self.lost:
            raise ChannelLostError("the channel to the runner is closed")
        try:
            self._writer.write(protocol.encode(frame))
            await self._writer.drain()
        except OSError as error:
            self._lose()
            raise ChannelLostError(f"the runner is gone: {error}") from error

    async def _read(self) -> None:
        with contextlib.suppress(*_ENDINGS):
            while True:
                frame = protocol.decode(await self._reader.readuntil(b"\n"))
                queue = self._waiting.get(str(frame.get("call_id")))
                if queue is not None:
                    queue.put_nowait(frame)
                elif frame.get("type") == "error":
                    log.warning("runner_error", message=str(frame.get("message"))[:300])
        self._lose()

    def _lose(self) -> None:
        self.lost = True
        self._writer.close()
        for queue in self._waiting.values():
            queue.put_nowait(None)


class CallFrames:
    """Frames about one call."""

    def __init__(self, channel: Channel, call_id: str) -> None:
        self._channel = channel
        self._call_id = call_id
        self._queue: asyncio.Queue[Frame | None] = asyncio.Queue()

    def __enter__(self) -> "CallFrames":
        self._channel._waiting[self._call_id] = self._queue  # noqa: SLF001 - two halves of one thing
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel._waiting.pop(self._call_id, None)  # noqa: SLF001

    async def send(self, op: str, **fields: object) -> None:
        """Send an operation on this call."""
        await self._channel.send({"op": op, "call_id": self._call_id, **fields})

    async def next(self, timeout_s: float | None = None) -> Frame:
        """The next frame.

        Raises:
            ChannelLostError: the runner is gone.
            TimeoutError: none came within `timeout_s`.
        """
        async with asyncio.timeout(timeout_s):
            frame = await self._queue.get()
        if frame is None:
            raise ChannelLostError("the runner is gone")
        return frame
