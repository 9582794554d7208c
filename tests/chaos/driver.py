"""The client of a chaos run: talks to several sessions, approves, follows, and writes it all down."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.chaos.api import Api, Json
from tests.chaos.evidence import Journal, ended

T_STUCK_S = 45.0
TAIL_S = 8.0


@dataclass(frozen=True)
class Load:
    """How much is said.

    Fields:
        model_trouble: chance that a prompt makes the model fail on its way.
        follow_up, steer, abort: chances after a prompt that is still running.
        again: chance that an accepted request is sent once more.
        stall_s: how long the model thinks before each answer, at most.
        deny: chance that an approval is denied. answers: whether anybody decides at all.
        crowd: clients that talk in the last session at the same time.
        others: whether the clients of `tests/chaos/clients` talk, too.
    """

    sessions: int = 5
    asking_sessions: int = 1
    seconds: float = 15.0
    model_trouble: float = 0.15
    follow_up: float = 0.25
    steer: float = 0.3
    abort: float = 0.08
    again: float = 0.2
    pause_s: float = 0.3
    stall_s: float = 0.0
    longest_s: float = 0.4
    deny: float = 0.25
    answers: bool = True
    crowd: int = 1
    others: bool = False


@dataclass
class Seen:
    """What a follower of one session knows.

    Fields:
        settled: keys of inputs that ended or were dropped.
        cursor: how far the mailbox was consumed.
    """

    last_id: str | None = None
    last_seq: int = 0
    cursor: int = 0
    settled: set[str] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Driver:
    """One client with its sessions. `talk` for a while, then `quiesce`, then `world`.

    Args:
        tag: what all names begin with; by default the seed.
    """

    def __init__(self, api: Api, folder: Path, seed: int, load: Load, *, tag: str = "") -> None:
        self._api = api
        self._journal = Journal(folder / "client.jsonl")
        self._followed = Journal(folder / "followed.jsonl")
        self._random = random.Random(f"driver-{seed}")
        self._load = load
        self._seed = seed
        self._tag = tag or str(seed)
        self._number = 0
        self.modes: dict[str, str] = {}
        self._seen: dict[str, Seen] = defaultdict(Seen)
        self._accepted: dict[str, set[str]] = defaultdict(set)
        self._stored: dict[str, int] = defaultdict(int)  # by session: the last wish or setting
        self._decided: set[str] = set()
        self._background: list[asyncio.Task[None]] = []
        self._over = asyncio.Event()
        self._silent = False

    # -- life ------------------------------------------------------------------

    async def open(self) -> None:
        """Make the sessions, and start to follow them and to decide approvals."""
        for number in range(self._load.sessions):
            mode = "ask" if number < self._load.asking_sessions else "allow-all"
            await self.add(f"c{self._tag}-{number}", mode)
        if self._load.answers:
            self._spawn(self._approve, "")

    async def add(self, session: str, mode: str, **fields: str) -> None:
        """Make one more session, and follow it."""
        body = {"id": session, "mode": mode, **fields}
        answer = await self._api.request("POST", "/api/sessions", body)
        if answer.status not in (201, 409):
            raise AssertionError(f"session {session} could not be made: {answer}")
        self.watch(session, mode)

    def watch(self, session: str, mode: str) -> None:
        """Follow a session that is there, or will be."""
        self.modes[session] = mode
        self._spawn(self._follow, session)

    def accepted(self, session: str, key: str) -> None:
        """Someone else's input was accepted in a session that we watch, and has to end."""
        self._accepted[session].add(key)

    def expect(self, session: str, key: str, name: str) -> None:
        """Someone else, on our behalf, says this in a session that we watch."""
        about = {"action": "prompt", "session": session, "key": key, "name": name}
        self._journal.write({"event": "send", **about})
        self._journal.write({"event": "ok", "seq": 0, **about})
        self._accepted[session].add(key)

    def _spawn(self, work: Callable[[str], Awaitable[None]], session: str) -> None:
        async def run() -> None:
            await work(session)

        self._background.append(asyncio.create_task(run(), name=f"{work.__name__}-{session}"))

    async def talk(self) -> None:
        """Say things for as long as the load says."""
        deadline = time.monotonic() + self._load.seconds
        talking = [
            self._converse(session, number, deadline)
            for place, session in enumerate(self.modes)
            for number in range(self._load.crowd if place == len(self.modes) - 1 else 1)
        ]
        await asyncio.gather(*talking)
        self._check_background()

    def hush(self) -> None:
        """Say nothing more: `talk` ends soon."""
        self._silent = True

    async def quiesce(self, timeout_s: float = T_STUCK_S) -> None:
        """Wait until every session is idle and all that was accepted has ended.

        A session that goes on is not stuck: the time is over when no log has grown for so long, and at last
        after three times as long.
        """
        began = grown_at = time.monotonic()
        grown = -1
        while time.monotonic() < min(grown_at + timeout_s, began + 3 * timeout_s):
            self._check_background()
            if all([await self._is_done(session) for session in self.modes]):
                return
            logged = sum(seen.last_seq for seen in self._seen.values())
            if logged > grown:
                grown, grown_at = logged, time.monotonic()
            await asyncio.sleep(0.25)

    async def _is_done(self, session: str) -> bool:
        seen = self._seen[session]
        if self._accepted[session] - seen.settled or self._stored[session] > seen.cursor:
            return False
        answer = await self._api.request("GET", f"/api/sessions/{session}", patience_s=2.0)
        return answer.accepted and answer.body["status"] == "idle" and not answer.body.get("queued")

    async def world(self) -> Json:
        """Logs and states as the API shows them, once the followers have caught up; ends all tasks."""
        entries = {session: await self._api.log(session) for session in self.modes}
        status = {}
        for session in self.modes:
            answer = await self._api.request("GET", f"/api/sessions/{session}")
            status[session] = answer.body if answer.accepted else {"status": f"HTTP {answer.status}"}
        deadline = time.monotonic() + TAIL_S
        while time.monotonic() < deadline and any(
            log and self._seen[session].last_seq < log[-1]["seq"] for session, log in entries.items()
        ):
            await asyncio.sleep(0.1)
        self._over.set()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        return {"entries": entries, "status": status, "modes": self.modes}

    def _check_background(self) -> None:
        for task in self._background:
            if task.done() and not self._over.is_set():
                raise AssertionError(f"{task.get_name()} ended by itself") from task.exception()

    # -- talking ---------------------------------------------------------------

    async def _converse(self, session: str, number: int, deadline: float) -> None:
        rng = random.Random(f"{self._seed}-{session}" + (f"-{number}" if number else ""))
        while time.monotonic() < deadline and not self._silent:
            key = await self.say(session, "prompt", self._prompt_text(rng), again=self._again(rng))
            await asyncio.sleep(rng.random() * self._load.pause_s)
            if rng.random() < self._load.follow_up:
                await self.say(session, "followup", self._prompt_text(rng), again=self._again(rng))
            if rng.random() < self._load.steer:
                text = f"steer={self.name('ST')} look here"
                await self.say(session, "steer", text, again=self._again(rng))
            if rng.random() < self._load.abort:
                await self.abort(session)
            if key and rng.random() < 0.7:
                await self.until_settled(session, key, min(deadline, time.monotonic() + 10))

    def name(self, kind: str) -> str:
        """One that nothing else has."""
        self._number += 1
        return f"{kind}{self._tag}-{self._number}"

    def _again(self, rng: random.Random) -> bool:
        return rng.random() < self._load.again

    def _prompt_text(self, rng: random.Random) -> str:
        words = [f"op={self.name('P')} steps={rng.choice((1, 1, 2, 3))}"]
        words.append(f"sleep={rng.random() * self._load.longest_s:.2f}")
        if rng.random() < 0.25:
            words.append("calls=2")
        if self._load.stall_s:
            words.append(f"stall={rng.random() * self._load.stall_s:.2f}")
        if rng.random() < self._load.model_trouble:
            words.append(rng.choice(("fail=429x1", "fail=500x1", "cut=1", "malformed=1", "stall=0.5")))
        return " ".join(words)

    async def say(self, session: str, kind: str, text: str, *, again: bool = False, **fields: Any) -> str:
        """The key under which it was accepted; empty if it was not. `again`: all of it twice."""
        name = text.partition("=")[2].partition(" ")[0]
        key = f"k-{name}"
        action = "prompt" if kind == "edit" else kind  # other words in the place of the first ones
        about = {"action": action, "session": session, "key": key, "name": name}
        body = {"text": text, "key": key, **fields}
        path = f"/api/sessions/{session}/{kind}"
        self._journal.write({"event": "send", **about})
        for _ in range(2 if again else 1):
            answer = await self._api.request("POST", path, body)
            if answer.accepted:
                self._journal.write({"event": "ok", "seq": answer.body["seq"], **about})
                self._accepted[session].add(key)
            elif answer.status:
                self._journal.write(
                    {"event": "reject", "status": answer.status, "body": answer.body, **about}
                )
            else:
                self._journal.write({"event": "unknown", **about})
        return key if key in self._accepted[session] else ""

    async def abort(self, session: str) -> None:
        """Wish that the session stops what it does."""
        self._journal.write({"event": "send", "action": "abort", "session": session})
        answer = await self._api.request("POST", f"/api/sessions/{session}/abort", {"reason": "chaos"})
        if answer.accepted:
            self.stored(session, answer.body["seq"])
        event = "ok" if answer.accepted else "reject" if answer.status else "unknown"
        self._journal.write({"event": event, "action": "abort", "session": session, "status": answer.status})

    def stored(self, session: str, seq: int) -> None:
        """Mail of ours that has no end of its own: it is over when it was consumed."""
        self._stored[session] = max(self._stored[session], seq)

    async def until_settled(self, session: str, key: str, deadline: float) -> None:
        """Until an input has ended, or the time is over."""
        seen = self._seen[session]
        while key not in seen.settled and (left := deadline - time.monotonic()) > 0:
            seen.changed.clear()
            try:
                async with asyncio.timeout(min(left, 1.0)):
                    await seen.changed.wait()
            except TimeoutError:
                continue

    # -- following and approving -----------------------------------------------

    async def _follow(self, session: str) -> None:
        seen = self._seen[session]
        while not self._over.is_set():
            cut_s = 1 + 2 * self._random.random() if self._random.random() < 0.5 else None
            try:
                async for event in self._api.events(session, last_id=seen.last_id, cut_after_s=cut_s):
                    seen.last_id = event["id"] or seen.last_id
                    self._note(session, seen, event)
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass
            await asyncio.sleep(0.05)

    def _note(self, session: str, seen: Seen, event: Json) -> None:
        if event["event"] == "entry":
            entry = event["entry"]
            seen.last_seq = max(seen.last_seq, event["seq"])
            seen.cursor = max(seen.cursor, entry.get("cursor", 0))
            if ended(entry) or entry["type"] == "dropped":
                seen.settled.update(entry.get("keys", []))
            seen.changed.set()
            place = {"seq": event["seq"], "index": event.get("index", 0)}
            self._followed.write({"session": session, "event": "entry", **place}, durable=False)
        elif event["event"] == "message_update":
            piece = {"message_id": event["message_id"], "n": event.get("n", 0)}
            self._followed.write({"session": session, "event": "message_update", **piece}, durable=False)

    async def _approve(self, _: str) -> None:
        while True:
            await asyncio.sleep(0.2)
            answer = await self._api.request("GET", "/api/approvals", patience_s=1.0)
            for approval in answer.body["approvals"] if answer.accepted else []:
                if approval["session"] in self.modes and approval["id"] not in self._decided:
                    self._decided.add(approval["id"])
                    await self.decide(approval)

    async def decide(self, approval: Json) -> None:
        """Say yes or no."""
        decision = "deny" if self._random.random() < self._load.deny else "once"
        about = {
            "action": "approval",
            "session": approval["session"],
            "approval": approval["id"],
            "decision": decision,
        }
        self._journal.write({"event": "send", **about})
        answer = await self._api.request("POST", f"/api/approvals/{approval['id']}", {"decision": decision})
        event = "ok" if answer.accepted else "reject" if answer.status else "unknown"
        self._journal.write({"event": event, "status": answer.status, **about})
        if event == "unknown":
            self._decided.discard(approval["id"])
