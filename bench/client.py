"""A light client: requests over kept connections, one event stream per session, little decoding."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import aiohttp
import msgspec

Json = dict[str, Any]


class _Delta(msgspec.Struct):
    text: str = ""
    type: str = ""


class _Event(msgspec.Struct):
    """What the bench reads of any event."""

    type: str = ""
    delta: _Delta | None = None
    outcome: str = ""


_decode = msgspec.json.Decoder(_Event).decode


class Client:
    """Use as an async context manager."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base = base_url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Client":
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=300)
        self._http = aiohttp.ClientSession(
            headers=self._headers, connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.close()

    @property
    def http(self) -> aiohttp.ClientSession:
        assert self._http is not None, "use it as a context manager"
        return self._http

    async def request(self, method: str, path: str, body: Json | None = None) -> Any:
        """The decoded body of a 2xx answer."""
        async with self.http.request(method, self._base + path, json=body) as response:
            data = await response.read()
            assert response.status < 300, f"{method} {path}: {response.status} {data[:300]!r}"
            return json.loads(data) if data else None

    async def session(self, name: str, mode: str = "allow-all") -> str:
        """A new session."""
        await self.request("POST", "/api/sessions", {"id": name, "mode": mode})
        return name

    async def prompt(self, session: str, text: str) -> int:
        """Its sequence, once the prompt is stored."""
        answer = await self.request("POST", f"/api/sessions/{session}/prompt", {"text": text})
        return int(answer["seq"])

    def watch(self, session: str) -> "Watch":
        """The live events of a session; use as an async context manager."""
        return Watch(self, f"{self._base}/api/sessions/{session}/events?after=-1")


class Answered:
    """One run as a client saw it, in monotonic nanoseconds."""

    def __init__(self) -> None:
        self.first_ns = 0
        self.end_ns = 0
        self.characters = 0
        self.outcome = ""
        self.heard_ns: list[int] = []  # when each packet with words came

    def pauses_ms(self) -> list[float]:
        """The times between two packets with words."""
        pairs = zip(self.heard_ns, self.heard_ns[1:], strict=False)
        return [(later - earlier) / 1e6 for earlier, later in pairs]


class Watch:
    """One event stream, read in the background: `answer` waits for the end of the next run."""

    def __init__(self, client: Client, url: str) -> None:
        self._client = client
        self._url = url
        self._ended: asyncio.Queue[Answered] = asyncio.Queue()
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Watch":
        self._task = asyncio.create_task(self._read())
        waiter = asyncio.create_task(self._ready.wait())
        await asyncio.wait([waiter, self._task], return_when=asyncio.FIRST_COMPLETED, timeout=10)
        if not self._ready.is_set():
            waiter.cancel()
            assert self._task.done(), f"{self._url}: nothing within 10 s"
            self._task.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def answer(self, timeout_s: float = 60.0) -> Answered:
        """The next run that ended."""
        async with asyncio.timeout(timeout_s):
            return await self._ended.get()

    async def _read(self) -> None:
        current = Answered()
        async for data, arrived in self._events():
            event = _decode(data)
            if event.type == "message_update" and event.delta is not None:
                current.first_ns = current.first_ns or arrived
                current.characters += len(event.delta.text)
                if not current.heard_ns or current.heard_ns[-1] != arrived:
                    current.heard_ns.append(arrived)
            elif event.type == "agent_end":
                current.end_ns, current.outcome = arrived, event.outcome
                self._ended.put_nowait(current)
                current = Answered()

    async def _events(self) -> AsyncIterator[tuple[bytes, int]]:
        headers = {"Accept": "text/event-stream"}
        async with self._client.http.get(self._url, headers=headers) as response:
            assert response.status == 200, f"{self._url}: status {response.status}"
            buffer = b""
            async for chunk in response.content.iter_any():
                arrived = time.monotonic_ns()
                *events, buffer = (buffer + chunk).split(b"\n\n")
                for event in events:
                    if b"event: caught_up" in event:
                        self._ready.set()
                    if b"event: message_update" in event or b"event: agent_end" in event:
                        yield event.partition(b"data: ")[2], arrived
