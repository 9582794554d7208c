"""The project's own NATS client, with the fake server where its socket would be."""

import asyncio
from typing import Any

import nats.errors
from nats.aio.subscription import Subscription

from fairlead_common.bus.inbox_client import InboxClient
from fairlead_common.bus.settings import RECONNECT_PAUSE_S
from tests.support.fake_nats.consumer import Message
from tests.support.fake_nats.server import FakeNats, Interest

MAX_PAYLOAD_BYTES = 1 << 20
_BUFFER_BYTES = 2 << 20


class FakeClient(InboxClient):
    """Everything above the wire is the real client: subscriptions, buffers, callbacks, states."""

    def __init__(self, server: FakeNats) -> None:
        super().__init__()
        self.server = server
        self.name = ""
        self.dead = False
        self._incoming: asyncio.Queue[tuple[int, Message]] = asyncio.Queue()
        self._buffered: list[Message] = []

    # -- what the server sees --------------------------------------------------

    def receive(self, sid: int, message: Message) -> None:
        """See `Peer.receive`."""
        self._incoming.put_nowait((sid, message))

    def disconnected(self) -> None:
        """See `Peer.disconnected`."""
        if self.is_closed or self.is_reconnecting:
            return
        self._status = InboxClient.RECONNECTING
        if self._reading_task is not None:
            self._reading_task.cancel()
        self._incoming = asyncio.Queue()  # what was on its way is lost
        self._reconnection_task = asyncio.get_running_loop().create_task(self._reconnect())

    def die(self) -> None:
        """See `Peer.die`: nothing comes or goes any more, and it does not reconnect."""
        self.dead = True
        self.server.leave(self)

    # -- in place of the socket ------------------------------------------------

    async def connect(self, servers: Any = (), **options: Any) -> None:  # type: ignore[override]
        """See the library; as long as the server is down it is tried again."""
        self.name = str(options.get("name") or "")
        self.options = {**options, "servers": servers}
        self._error_cb = options["error_cb"]
        self._disconnected_cb = options["disconnected_cb"]
        self._closed_cb = options["closed_cb"]
        self._reconnected_cb = options["reconnected_cb"]
        self._inbox_prefix = bytearray(str(options["inbox_prefix"]).encode())
        self._max_pending_size = _BUFFER_BYTES
        self._max_payload = MAX_PAYLOAD_BYTES
        while not self.server.up:
            await self._error_cb(ConnectionRefusedError("the fake server is down"))
            await asyncio.sleep(RECONNECT_PAUSE_S)
        self._enter()

    async def force_reconnect(self) -> None:
        """See the library."""
        if self.is_connected:
            self.server.cut(self)

    async def flush(self, timeout: int = 10) -> None:
        """Until the server has acted on all that was sent before."""
        if self.is_closed:
            raise nats.errors.ConnectionClosedError
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def _enter(self) -> None:
        self._server_info = {"jetstream": True, "version": "2.15.1", "max_payload": MAX_PAYLOAD_BYTES}
        self._status = InboxClient.CONNECTED
        self.server.join(self)
        self._reading_task = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        while True:
            sid, message = await self._incoming.get()
            words: Any = message  # `_process_headers` takes them out
            await self._process_msg(
                sid, message.subject.encode(), message.reply.encode(), message.data, words
            )

    async def _process_headers(self, headers: Any) -> dict[str, str] | None:
        """See the library; there is no block of bytes to parse."""
        status, _, description = headers.status.partition(" ")
        told = {"Status": status, "Description": description} if description else {"Status": status}
        return {**(told if status else {}), **headers.headers} or None

    async def _reconnect(self) -> None:
        if self._disconnected_cb is not None:
            await self._disconnected_cb()
        await asyncio.sleep(RECONNECT_PAUSE_S)
        while not self.server.up:
            await asyncio.sleep(RECONNECT_PAUSE_S)
        self._enter()
        for sub in self._subs.values():
            await self._send_subscribe(sub)
        buffered, self._buffered = self._buffered, []
        self._pending_data_size = 0
        for message in buffered:
            self.server.publish(self, message)
        if self._reconnected_cb is not None:
            await self._reconnected_cb()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        self.server.leave(self)
        if self._reading_task is not None:
            self._reading_task.cancel()
        self.options["reconnect_time_wait"] = 0.01
        await super()._close(status, do_cbs)

    async def _flush_pending(self, force_flush: bool = False) -> None:
        return

    async def _send_publish(
        self, subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, Any] | None
    ) -> None:
        fields = {name.strip(): str(value).strip() for name, value in (headers or {}).items()}
        message = Message(subject, bytes(payload), fields, reply)
        if self.dead:
            return
        if self._status == InboxClient.CONNECTED:
            self.server.publish(self, message)
        else:
            self._buffered.append(message)
            self._pending_data_size += payload_size

    async def _send_subscribe(self, sub: Subscription) -> None:
        if self._status == InboxClient.CONNECTED and not self.dead:
            self.server.subscribe(Interest(self, sub._id, sub._subject, sub._queue or ""))

    async def _send_unsubscribe(self, sid: int, limit: int = 0) -> None:
        self.server.unsubscribe(self, sid)
