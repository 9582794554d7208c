"""A gateway of a few lines that keeps its promises in memory, to try the chaos client and the bench on."""

import asyncio
import contextlib
import json
import re
import time
from pathlib import Path
from typing import Any

from aiohttp import web

Json = dict[str, Any]


class FakeGateway:
    """Answers at once: one ledger line for each step, then `run_end`.

    Args:
        folder: gets `model.jsonl` and `ledger.log`.
        refuse_every: every n-th request is answered 503 after it was obeyed; 0 for none.
    """

    def __init__(self, folder: Path, *, refuse_every: int = 0) -> None:
        self.folder = folder
        self.logs: dict[str, list[Json]] = {}
        self.modes: dict[str, str] = {}
        self.approvals: dict[str, tuple[str, str]] = {}
        self._decisions: dict[str, str] = {}
        self._keys: dict[tuple[str, str], int] = {}
        self._seq = 0
        self._refuse_every = refuse_every
        self._requests = 0
        self._stored = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        app = web.Application(middlewares=[self._unreliable])
        app.router.add_post("/api/sessions", self._create)
        app.router.add_get("/api/sessions/{id}", self._show)
        app.router.add_post("/api/sessions/{id}/abort", self._abort)
        app.router.add_post("/api/sessions/{id}/{kind:prompt|steer|followup}", self._input)
        app.router.add_get("/api/sessions/{id}/entries", self._entries)
        app.router.add_get("/api/sessions/{id}/events", self._events)
        app.router.add_get("/api/approvals", self._pending)
        app.router.add_post("/api/approvals/{id}", self._decide)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _unreliable(self, request: web.Request, handler: Any) -> web.StreamResponse:
        answer: web.StreamResponse = await handler(request)
        self._requests += 1
        if self._refuse_every and self._requests % self._refuse_every == 0 and not answer.prepared:
            return web.json_response({"error": {"code": "unavailable", "message": "fake"}}, status=503)
        return answer

    # -- the log -----------------------------------------------------------

    async def _append(self, session: str, kind: str, **fields: Any) -> Json:
        self._seq += 1
        entry = {"type": kind, "id": f"e{self._seq}", "seq": self._seq, "ts": time.time_ns() // 1_000_000}
        entry |= {"epoch": 1, "run_id": f"r-{session}", **fields}
        self.logs[session].append(entry)
        async with self._stored:
            self._stored.notify_all()
        return entry

    async def _say(self, session: str, role: str, **fields: Any) -> Json:
        return await self._append(session, "message", message={"role": role, **fields})

    def _line(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(line + "\n")

    async def _run(self, session: str, text: str, source: str, seq: int, key: str) -> None:
        run = f"r{seq}"
        await self._append(session, "run_start", run_id=run)
        await self._say(session, "user", content=[], source=source, seqs=[seq], keys=[key])
        name = text.partition("=")[2].partition(" ")[0]
        self._line("model.jsonl", json.dumps({"event": "request", "n": seq, "t": 0, "seen": [name]}))
        steps = re.search(r"steps=(\d)", text)
        for step in range(int(steps.group(1)) if steps else 0):
            op = f"{name}.S{step + 1}"
            block = {"type": "tool_call", "call_id": f"c-{op.replace('.', '-')}", "name": "bash"}
            block["arguments"] = {"command": f"python3 -IS ledger.py {op} 0"}  # type: ignore[assignment]
            await self._say(session, "assistant", content=[block])
            if self.modes[session] == "ask":
                self.approvals[f"a-{op.replace('.', '-')}"] = (session, run)
                await self._append(session, "run_end", run_id=run, outcome="waiting_approval")
                granted = await self._approved(session, f"a-{op.replace('.', '-')}", block["call_id"])
                run = f"{run}b"
                await self._append(session, "run_start", run_id=run)
            else:
                granted = True
            if granted:
                self._line("ledger.log", f"{op} 1 {time.monotonic_ns()}")
            outcome: Json = {"status": "ok" if granted else "denied", "content": []}
            await self._say(session, "tool_result", call_id=block["call_id"], name="bash", outcome=outcome)
        await self._say(session, "assistant", content=[{"type": "text", "text": f"done {name}"}])
        await self._append(session, "run_end", run_id=run, outcome="completed", seqs=[seq], keys=[key])

    async def _approved(self, session: str, approval: str, call: str) -> bool:
        async with self._stored:
            await self._stored.wait_for(lambda: approval not in self.approvals)
        decision = self._decisions[approval]
        await self._append(session, "approval", approval_id=approval, call_id=call, decision=decision)
        return decision != "deny"

    # -- routes ------------------------------------------------------------

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["id"] in self.logs:
            return web.json_response({}, status=409)
        self.logs[body["id"]], self.modes[body["id"]] = [], body["mode"]
        return web.json_response({"id": body["id"]}, status=201)

    async def _show(self, request: web.Request) -> web.Response:
        waiting = sum(1 for session, _ in self.approvals.values() if session == request.match_info["id"])
        status = "waiting_approval" if waiting else "idle"
        return web.json_response({"status": status, "queued": 0, "approvals": waiting})

    async def _input(self, request: web.Request) -> web.Response:
        body, session = await request.json(), request.match_info["id"]
        place = (session, body["key"])
        if place not in self._keys:
            self._seq += 1
            self._keys[place] = self._seq
            work = self._run(session, body["text"], request.match_info["kind"], self._seq, body["key"])
            self._tasks = [*getattr(self, "_tasks", []), asyncio.create_task(work)]
        return web.json_response({"seq": self._keys[place], "key": body["key"]}, status=202)

    async def _abort(self, _: web.Request) -> web.Response:
        return web.json_response({"seq": self._seq}, status=202)

    async def _entries(self, request: web.Request) -> web.Response:
        after = int(request.query["after"])
        found = [entry for entry in self.logs[request.match_info["id"]] if entry["seq"] > after]
        return web.json_response({"entries": found, "next": None})

    async def _pending(self, _: web.Request) -> web.Response:
        pending = [{"id": key, "session": session} for key, (session, _) in self.approvals.items()]
        return web.json_response({"approvals": pending})

    async def _decide(self, request: web.Request) -> web.Response:
        known = self.approvals.pop(request.match_info["id"], None)
        self._decisions.setdefault(request.match_info["id"], (await request.json())["decision"])
        async with self._stored:
            self._stored.notify_all()
        return web.json_response({"seq": 0}, status=202 if known else 404)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        session = request.match_info["id"]
        last = int(request.headers.get("Last-Event-ID", "0"))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        with contextlib.suppress(OSError):
            while True:
                for entry in [entry for entry in self.logs[session] if entry["seq"] > last]:
                    last = entry["seq"]
                    data = json.dumps({"type": "entry", "seq": last, "entry": entry})
                    await response.write(f"id: {last}\nevent: entry\ndata: {data}\n\n".encode())
                async with self._stored:
                    await asyncio.wait_for(self._stored.wait(), 5)
        return response
