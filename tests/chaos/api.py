"""The HTTP side of the chaos client: patient requests with one key, and an event stream that resumes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp

ATTEMPT_S = 5.0
PATIENCE_S = 40.0
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
_AGAIN = frozenset({408, 425, 429})

Json = dict[str, Any]


def _first(pairs: list[tuple[str, Any]]) -> Json:
    """An object whose first value counts when a key comes twice."""
    return dict(reversed(pairs))


class Answer(NamedTuple):
    """What came of one request in the end; `status` 0: no one ever answered."""

    status: int
    body: Any

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300


class Api:
    """One client. Every request is repeated until it is answered for good or patience ends."""

    def __init__(self, base_url: str, token: str) -> None:
        self._base = base_url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Api":
        self._http = aiohttp.ClientSession(
            headers=self._headers, connector=aiohttp.TCPConnector(limit=0), read_bufsize=1 << 20
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._http is not None
        await self._http.close()

    async def request(
        self, method: str, path: str, body: Json | None = None, *, patience_s: float = PATIENCE_S
    ) -> Answer:
        """The first answer that is neither 5xx nor a broken connection."""
        assert self._http is not None
        deadline = time.monotonic() + patience_s
        attempt = 0
        while True:
            try:
                async with self._http.request(
                    method,
                    self._base + path,
                    json=body,
                    timeout=aiohttp.ClientTimeout(total=ATTEMPT_S),
                ) as response:
                    data = await response.read()
                    status = response.status
                if status < 500 and status not in _AGAIN:
                    return Answer(status, json.loads(data, object_pairs_hook=_first) if data else None)
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                pass
            if time.monotonic() > deadline:
                return Answer(0, None)
            await asyncio.sleep(_PAUSES_S[min(attempt, len(_PAUSES_S) - 1)])
            attempt += 1

    async def events(
        self, session: str, *, last_id: str | None, cut_after_s: float | None = None
    ) -> AsyncIterator[Json]:
        """Events of one connection, as data with `event` and `id`; ends when the connection does.

        Raises:
            aiohttp.ClientError, OSError: it could not be opened, or broke.
        """
        assert self._http is not None
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        timeout = aiohttp.ClientTimeout(total=cut_after_s, sock_connect=2.0, sock_read=25.0)
        path = f"{self._base}/api/sessions/{session}/events?after=0"
        async with self._http.get(path, headers=headers, timeout=timeout) as response:
            if response.status != 200:
                raise aiohttp.ClientError(f"status {response.status}")
            fields: dict[str, str] = {}
            async for raw in response.content:
                line = raw.decode().rstrip("\r\n")
                if line.startswith(":"):
                    continue
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                    continue
                if "data" in fields:
                    yield {
                        **json.loads(fields["data"]),
                        "event": fields.get("event", "message"),
                        "id": fields.get("id", ""),
                    }
                fields = {}

    async def entries(self, session: str) -> list[Json]:
        """The whole log."""
        found: list[Json] = []
        after: int | None = 0
        while after is not None:
            answer = await self.request("GET", f"/api/sessions/{session}/entries?after={after}&limit=1000")
            if not answer.accepted:
                raise AssertionError(f"entries of {session}: {answer}")
            found += answer.body["entries"]
            after = answer.body["next"]
        return found

    async def log(self, session: str) -> list[Json]:
        """The whole log, empty if the session is gone: whether it may be is for the oracle to judge."""
        answer = await self.request("GET", f"/api/sessions/{session}")
        return [] if answer.status == 404 else await self.entries(session)
