"""A client that works in sessions, deletes them at any moment and makes them again under the same id.

`recycled.jsonl` has a line for each request and its answer, with the generation it was meant for.
"""

import asyncio
import random
import time
from pathlib import Path

from tests.chaos.api import Api, Json
from tests.chaos.evidence import Journal, ended

SETTLE_S = 4.0  # a prompt is given at most so long before something else is done
DELETE_S = 40.0


class Recycler:
    """A few ids that come and go. `talk` for a while, then `quiesce`, then `world`."""

    def __init__(self, api: Api, folder: Path, seed: int, *, sessions: int = 2) -> None:
        self._api = api
        self._journal = Journal(folder / "recycled.jsonl")
        self._seed = seed
        self._generation = {f"r{seed}-{number}": 0 for number in range(sessions)}
        self._alive: dict[str, set[str]] = {}  # by session: keys accepted in the generation that lives
        self._number = 0

    async def talk(self, seconds: float) -> None:
        """Make, prompt and delete until the time is over. One id stays, the others are deleted in the end."""
        deadline = time.monotonic() + seconds
        await asyncio.gather(*(self._recycle(session, deadline) for session in self._generation))

    async def _recycle(self, session: str, deadline: float) -> None:
        rng = random.Random(f"recycler-{self._seed}-{session}")
        while True:
            await self._make(session)
            for _ in range(rng.choice((1, 1, 2, 3))):
                key = await self._say(session, rng)
                if key and rng.random() < 0.5:
                    await self._settled(session, {key}, min(SETTLE_S, max(0.0, deadline - time.monotonic())))
            last = time.monotonic() > deadline
            if last and session.endswith("-0"):
                return
            if (
                not last and rng.random() < 0.3
            ):  # said while it is being deleted: it may end up on either side
                await asyncio.gather(self._say(session, rng, racing=True), self._delete(session))
            else:
                await self._delete(session)
            if last:
                return
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.2, 1.0)))

    async def _make(self, session: str) -> None:
        self._generation[session] += 1
        body = {"id": session, "mode": "allow-all"}
        answer = await self._api.request("POST", "/api/sessions", body)
        self._write("make", session, status=answer.status)
        self._alive[session] = set()

    async def _say(self, session: str, rng: random.Random, *, racing: bool = False) -> str:
        self._number += 1
        name = f"R{self._seed}-{self._number}"
        key = f"k-{name}"
        text = f"op={name} steps={rng.choice((1, 1, 2))} sleep={rng.random() * 0.4:.2f}"
        about = {"key": key, "name": name, "racing": racing}
        self._write("send", session, **about)
        answer = await self._api.request(
            "POST", f"/api/sessions/{session}/prompt", {"text": text, "key": key}
        )
        self._write("said", session, status=answer.status, accepted=answer.accepted, **about)
        if answer.accepted and not racing:
            self._alive[session].add(key)
        return key if answer.accepted else ""

    async def _delete(self, session: str) -> None:
        self._write("deleting", session)
        deadline = time.monotonic() + DELETE_S
        answer = await self._api.request("DELETE", f"/api/sessions/{session}")
        while answer.status == 202 and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
            answer = await self._api.request("DELETE", f"/api/sessions/{session}")
        self._alive.pop(session, None)
        self._write("deleted", session, status=answer.status)

    async def _settled(self, session: str, keys: set[str], timeout_s: float) -> bool:
        """Whether all of `keys` have ended within the time."""
        deadline = time.monotonic() + timeout_s
        while True:
            entries = await self._entries(session)
            done = {
                key
                for entry in entries
                if ended(entry) or entry["type"] == "dropped"
                for key in entry.get("keys", [])
            }
            if keys <= done:
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.1)

    async def _entries(self, session: str) -> list[Json]:
        try:
            return await self._api.entries(session)
        except AssertionError:
            return []

    def _write(self, event: str, session: str, **about: object) -> None:
        record = {"event": event, "session": session, "generation": self._generation[session], **about}
        self._journal.write(record)

    async def quiesce(self, timeout_s: float) -> None:
        """Wait until what was accepted in the generations that live has ended, or the time is over."""
        deadline = time.monotonic() + timeout_s
        for session, keys in self._alive.items():
            await self._settled(session, keys, deadline - time.monotonic())

    async def world(self) -> Json:
        """By session: status of GET and DELETE's answer for what was deleted, entries of what lives."""
        shown: Json = {}
        for session in self._generation:
            answer = await self._api.request("GET", f"/api/sessions/{session}")
            log = await self._api.request("GET", f"/api/sessions/{session}/entries")
            shown[session] = {
                "alive": session in self._alive,
                "status": answer.status,
                "log_status": log.status,
                "entries": await self._entries(session) if session in self._alive else [],
            }
        return shown
