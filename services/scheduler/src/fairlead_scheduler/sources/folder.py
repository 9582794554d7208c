"""Event files: what is dropped into a folder happens at once, once at its time, or again and again.

    {"type": "immediate", "text": "the backup failed", "session": "main"}
    {"type": "one-shot", "at": "2027-03-01T09:00:00+01:00", "text": "..."}
    {"type": "periodic", "schedule": "0 9 * * 1-5", "timezone": "Europe/Berlin", "text": "..."}

With `prompt` instead of `text` it is a run in a session of its own. An immediate file is removed once it is
mail, a one-shot file once it has happened; a periodic job lives as long as its file. A file that cannot be
read is set aside as `<name>.broken`, with the reason in `<name>.error`.
"""

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import structlog
from watchfiles import awatch

from fairlead_common.cron.jobs import Document
from fairlead_common.cron.requests import AddJob, UpdateJob
from fairlead_common.errors import ConflictError, FairleadError, InvalidInputError
from fairlead_common.ids import check_id
from fairlead_common.messages import HeartbeatNotice
from fairlead_scheduler.definitions import Definitions
from fairlead_scheduler.post import Post
from fairlead_scheduler.settings import Settings
from fairlead_scheduler.store import Store, token

log = structlog.get_logger()

MAX_BYTES = 256 * 1024
HALF_WRITTEN_S = 2.0  # a file that was changed less long ago may not be whole yet
SCAN_S = 5.0

_PREFIX = "file"


class EventFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says; see the module."""

    type: Literal["immediate", "one-shot", "periodic"]
    text: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    prompt: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    session: str = "main"
    at: str | None = None
    schedule: str | None = None
    timezone: str | None = None
    agent: str | None = None


_decoder = msgspec.json.Decoder(EventFile)


class Folder:
    """A part of every scheduler that reaches the folder; each file has its effect once all the same."""

    def __init__(self, definitions: Definitions, store: Store, post: Post, settings: Settings) -> None:
        self._definitions = definitions
        self._store = store
        self._post = post
        self._settings = settings
        self._changed = asyncio.Event()
        self._known: dict[str, str] = {}  # job: digest of the file that it was made from

    def look(self) -> None:
        """Look again now: at the configuration, and at the folder."""
        self._changed.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Follow the folder until `stop`."""
        while not stop.is_set():
            self._changed.clear()
            folder = Path(self._settings.cron.folder or "/")
            try:
                if self._settings.cron.folder and folder.is_dir():  # noqa: ASYNC240 - one look
                    await self._scan(folder)
                    await self._wait(folder)
                    continue
            except OSError as error:  # it went away meanwhile
                log.warning("folder_failed", error=str(error))
            try:
                async with asyncio.timeout(SCAN_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _wait(self, folder: Path) -> None:
        """Until something in the folder changes, or for a while."""
        async for changes in awatch(
            folder,
            stop_event=self._changed,
            rust_timeout=int(SCAN_S * 1000),
            yield_on_timeout=True,
            recursive=False,
        ):
            if changes:
                log.debug("folder_changed", files=len(changes))
            return

    async def _scan(self, folder: Path) -> None:
        paths = await asyncio.to_thread(_files, folder)
        jobs: set[str] = set()
        for path in paths:
            try:
                jobs.add(await self._take(path))
            except (InvalidInputError, msgspec.DecodeError, UnicodeDecodeError) as error:
                await asyncio.to_thread(_set_aside, path, str(error))
            except (FairleadError, OSError) as error:
                log.warning("event_file_delayed", file=path.name, error=str(error))
                jobs.add(_job_of(path))
        for job in set(self._known) - jobs:  # its file was removed
            try:
                await self._store.remove(job)
            except FairleadError as error:
                log.warning("event_file_delayed", job=job, error=str(error))
                continue
            del self._known[job]

    async def _take(self, path: Path) -> str:
        """Do what a file says; the id of its job."""
        job = _job_of(path)
        stat = await asyncio.to_thread(path.stat)
        if stat.st_size > MAX_BYTES:
            raise InvalidInputError("file", f"at most {MAX_BYTES} bytes, got {stat.st_size}")
        data = await asyncio.to_thread(path.read_bytes)
        digest = hashlib.sha256(data).hexdigest()[:32]
        try:
            event = _decoder.decode(data)
        except msgspec.DecodeError:
            if time.time() - stat.st_mtime < HALF_WRITTEN_S:
                log.debug("event_file_unfinished", file=path.name)
                return job
            raise
        if event.type == "immediate":
            await self._now(event, token(job, digest[:12], str(stat.st_mtime_ns)))
            await asyncio.to_thread(path.unlink, missing_ok=True)
            return job
        if self._known.get(job) != digest:
            await self._define(job, self._document(path, event))
            self._known[job] = digest
        elif event.type == "one-shot" and await self._happened(job):
            await asyncio.to_thread(path.unlink, missing_ok=True)
        return job

    async def _now(self, event: EventFile, key: str) -> None:
        session = check_id(event.session, "session")
        if event.prompt is not None:
            await self._post.prompt(session, key, event.prompt, event.agent)
            return
        if event.text is None:
            raise InvalidInputError("text", "an event needs a text or a prompt")
        await self._post.system(session, key, event.text, "file")
        await self._post.heartbeat(session, key, HeartbeatNotice(reason="wake"))

    def _document(self, path: Path, event: EventFile) -> Document:
        schedule: Document
        if event.type == "one-shot":
            schedule = {"kind": "at", "at": event.at or "", "tz": event.timezone}
        else:
            schedule = {"kind": "cron", "expr": event.schedule or "", "tz": event.timezone}
        payload: Document = {"kind": "systemEvent", "text": event.text or ""}
        if event.prompt is not None:
            payload = {"kind": "agentTurn", "message": event.prompt, "agent": event.agent}
        return {
            "name": path.stem[:200],
            "schedule": {key: value for key, value in schedule.items() if value is not None},
            "payload": {key: value for key, value in payload.items() if value is not None},
            "session": event.session,
            "wakeMode": "now",
        }

    async def _define(self, job: str, document: Document) -> None:
        """Make the job of a file, or bring it up to the file."""
        try:
            await self._definitions.add(AddJob(job=document, key=job, sender="file"))
        except ConflictError:
            await self._definitions.update(UpdateJob(id=job, patch={**document, "enabled": True}))

    async def _happened(self, job: str) -> bool:
        """Whether a one-shot job has had its moment."""
        found = await self._store.get(job)
        return found is None or not found[0].get("enabled", True)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _job_of(path: Path) -> str:
    return token(_PREFIX, hashlib.sha256(path.name.encode()).hexdigest()[:24])


def _set_aside(path: Path, reason: str) -> None:
    log.warning("event_file_set_aside", file=path.name, reason=reason)
    path.with_name(f"{path.name}.error").write_text(f"{reason}\n", encoding="utf-8")
    path.rename(path.with_name(f"{path.name}.broken"))
