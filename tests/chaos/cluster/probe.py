"""A client that writes twice a second whatever happens, and knows what it was promised."""

import asyncio
import time
from pathlib import Path

import structlog

from fairlead_common.bus import Bus, WrongSequenceError
from fairlead_common.bus.settings import BusSettings
from fairlead_common.errors import FairleadError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.entries import CustomEntry
from fairlead_common.protocol.entry_codec import encode_entry
from fairlead_common.protocol.ids import new_id
from tests.chaos.evidence import Journal
from tests.chaos.oracle import Violation

PERIOD_S = 0.5


class Probe:
    """Two writers of one connection: one creates, the other appends to a log of its own.

    `probe.jsonl` holds the moment and the record of each acknowledgement.
    """

    def __init__(self, url: str, folder: Path, session: str) -> None:
        self._url = url
        self._session = session
        self._journal = Journal(folder / "probe.jsonl")
        self._created: list[str] = []
        self._appended: list[str] = []
        self._unsure: set[str] = set()
        self._last = 0
        self._stop = asyncio.Event()
        self.violations: list[Violation] = []

    async def run(self) -> None:
        """Write until `stop`, then look whether everything is there; what is not is in `violations`."""
        bus = await Bus.connect(BusSettings(self._url, replicas=3), name="probe")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._every(lambda: self._create(bus)))
                tasks.create_task(self._every(lambda: self._append(bus)))
                await self._stop.wait()
            self.violations = await self._check(bus)
        finally:
            await bus.close()

    def stop(self) -> None:
        """No more writes."""
        self._stop.set()

    async def _every(self, write) -> None:  # type: ignore[no-untyped-def] # a coroutine function
        while not self._stop.is_set():
            began = time.monotonic()
            await write()
            await asyncio.sleep(max(0.0, PERIOD_S - (time.monotonic() - began)))

    async def _create(self, bus: Bus) -> None:
        name = new_id()
        try:
            await bus.create(
                subjects.TOOLS, subjects.tool_claim(self._session, name), b'{"by":"agent","holder":"p"}'
            )
        except FairleadError as error:
            self._journal.write(
                {"stream": subjects.TOOLS, "event": "error", "error": str(error)}, durable=False
            )
            return
        self._created.append(name)
        self._journal.write({"stream": subjects.TOOLS, "event": "ok", "id": name}, durable=False)

    async def _append(self, bus: Bus) -> None:
        name = new_id()
        entry = CustomEntry(
            id=name, parent_id=self._appended[-1] if self._appended else None, ts=0, epoch=0, name="probe"
        )
        headers = {subjects.H_CURSOR: "0", subjects.H_STATE: "closed"}
        subject = subjects.session_log(self._session)
        try:
            self._last = await bus.append(
                subjects.SESSIONS,
                subject,
                encode_entry(entry),
                record_id=name,
                expected=self._last,
                headers=headers,
            )
        except WrongSequenceError as error:
            # No one else writes here: what moved the log is of an attempt that was given up.
            self._journal.write(
                {"stream": subjects.SESSIONS, "event": "moved", "id": name, "error": str(error)},
                durable=False,
            )
            last = await bus.last(subjects.SESSIONS, subject)
            self._last = last.seq if last else 0
            return
        except FairleadError as error:
            self._unsure.add(name)
            self._journal.write(
                {"stream": subjects.SESSIONS, "event": "error", "id": name, "error": str(error)},
                durable=False,
            )
            return
        self._appended.append(name)
        self._journal.write({"stream": subjects.SESSIONS, "event": "ok", "id": name}, durable=False)

    async def _check(self, bus: Bus) -> list[Violation]:
        found: list[Violation] = []
        pattern = f"fairlead.tool.{self._session}.*.claim"
        claims = {record.subject.split(".")[3] async for record in bus.read(subjects.TOOLS, pattern)}
        found += [
            Violation("LOST", self._session, f"claim {name} was acknowledged and is not there")
            for name in self._created
            if name not in claims
        ]
        log = [
            record.headers.get("Fairlead-Id", "")
            async for record in bus.read(subjects.SESSIONS, subjects.session_log(self._session))
        ]
        sure = [name for name in log if name not in self._unsure]
        if sure != self._appended:
            lost = [name for name in self._appended if name not in log]
            extra = [name for name in sure if name not in self._appended]
            twice = len(log) - len(set(log))
            detail = f"{len(lost)} entries lost, {len(extra)} that nobody wrote, {twice} twice"
            detail += f": {(lost + extra)[:5]}"
            found.append(Violation("LOST" if lost else "DUP", self._session, detail))
        return found


structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
