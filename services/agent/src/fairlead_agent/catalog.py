"""Which executors there are, what they offer, and where a workspace lives."""

import asyncio
from typing import Any, cast

import jsonschema
import msgspec
import structlog
from jsonschema.protocols import Validator

from fairlead_common import subjects
from fairlead_common.buckets import Bucket
from fairlead_common.bus import Bus
from fairlead_common.config import AgentConfig
from fairlead_common.errors import BusUnavailableError, ConflictError, NotFoundError
from fairlead_common.messages import ExecutorInfo, ToolSpec
from fairlead_common.tail import Source, Tail

log = structlog.get_logger()

FRESH_S = 16.0  # an executor that was not heard for longer is gone: its heartbeat has a TTL of 15 s
INSTRUCTIONS_TTL_S = 60.0

_info = msgspec.json.Decoder(ExecutorInfo)


class Tools:
    """What the executors of one host offer, with everything that is derived from it made once."""

    def __init__(self, specs: list[ToolSpec], allowed: list[str]) -> None:
        self.specs = {spec.name: spec for spec in specs if not allowed or spec.name in allowed}
        self.wire = msgspec.json.encode(
            [
                {
                    "type": "function",
                    "function": {
                        "name": spec.name,
                        "description": spec.description,
                        "parameters": spec.parameters,
                    },
                }
                for spec in self.specs.values()
            ]
        )
        self._validators: dict[str, Validator] = {}

    def problem(self, name: str, arguments: dict[str, object]) -> str | None:
        """What is wrong with the arguments, in words for the model, or None."""
        validator = self._validators.get(name)
        if validator is None:
            schema = self.specs[name].parameters
            validator = jsonschema.validators.validator_for(schema)(schema)
            self._validators[name] = validator
        error = jsonschema.exceptions.best_match(validator.iter_errors(cast(Any, arguments)))
        if error is None:
            return None
        where = ".".join(str(part) for part in error.absolute_path) or "arguments"
        return f"{where}: {error.message[:500]}"


class Catalog:
    """Follows the heartbeats of all executors."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._executors: dict[str, tuple[ExecutorInfo, float]] = {}
        self._started = asyncio.get_running_loop().time()
        self._heard: dict[str, float] = {}  # host: when any of its executors was last heard
        self._changed = asyncio.Event()
        self._tools: dict[tuple[object, ...], Tools] = {}
        self._placements: dict[str, str] = {}
        self._instructions: dict[tuple[str, str], tuple[float, str]] = {}

    async def follow(self, stop: asyncio.Event) -> None:
        """A part of the service: keep up with the bucket `executors`."""
        bucket = subjects.BUCKET_EXECUTORS
        source = Source(f"KV_{bucket}", f"$KV.{bucket}.>", 1, lossy=True)
        async with Tail(self._bus, f"fairlead.kv.{bucket}.>", [source], lambda _: 0) as tail:
            await tail.follow(stop, lambda _, record: self._note(record.data))

    def _note(self, data: bytes) -> None:
        try:
            info = _info.decode(data)
        except msgspec.DecodeError as error:
            log.warning("heartbeat_ignored", error=str(error))
            return
        now = asyncio.get_running_loop().time()
        self._executors[info.executor] = (info, now)
        self._heard[info.host] = now
        self._changed.set()
        self._changed = asyncio.Event()

    def executors(self, host: str | None = None) -> list[ExecutorInfo]:
        """The executors that live, of one host or of all."""
        now = asyncio.get_running_loop().time()
        return [
            info
            for info, heard in self._executors.values()
            if now - heard < FRESH_S and (host is None or info.host == host)
        ]

    def silent_for(self, host: str) -> float:
        """Seconds since an executor of `host` was heard, or since this process began to listen."""
        return asyncio.get_running_loop().time() - self._heard.get(host, self._started)

    async def has_heartbeat(self, host: str) -> bool:
        """Whether the bucket holds a heartbeat of an executor of `host`, which expires after 15 s."""
        subject = f"$KV.{subjects.BUCKET_EXECUTORS}.{host}.>"
        return bool(await self._bus.last_of_each(f"KV_{subjects.BUCKET_EXECUTORS}", subject))

    def tools(self, host: str, allowed: list[str]) -> Tools:
        """What `host` offers, as far as the profile wants it."""
        known = [info for info, _ in self._executors.values() if info.host == host]
        live = self.executors(host) or known[-1:]  # while it restarts, what it last said
        specs = live[0].tools if live else []
        key = (host, *allowed, *(spec.name for spec in specs), len(msgspec.json.encode(specs)))
        if key not in self._tools:
            self._tools[key] = Tools(specs, allowed)
        return self._tools[key]

    async def place(self, agent: str, profile: AgentConfig, *, patience_s: float = 5.0) -> tuple[str, str]:
        """Host and workspace of an agent. The first choice is kept for ever (compare-and-set).

        Raises:
            NotFoundError: no executor has been heard within `patience_s`.
        """
        if profile.host:
            return profile.host, self._workspace(profile.host, profile)
        host = self._placements.get(agent)
        if host is None:
            host = await self._place(agent, patience_s)
            self._placements[agent] = host
        return host, self._workspace(host, profile)

    async def _place(self, agent: str, patience_s: float) -> str:
        bucket = Bucket(self._bus, subjects.BUCKET_WORKSPACES)
        stored = await bucket.get(f"agent.{agent}")
        if stored is not None:
            return stored.data.decode()
        candidates = await self._some_executor(patience_s)
        best = min(candidates, key=lambda info: info.running / max(1, info.capacity))
        try:
            await bucket.create(f"agent.{agent}", best.host.encode())
        except ConflictError:
            stored = await bucket.get(f"agent.{agent}")
            return best.host if stored is None else stored.data.decode()
        return best.host

    async def _some_executor(self, patience_s: float) -> list[ExecutorInfo]:
        try:
            async with asyncio.timeout(patience_s):
                while not (live := self.executors()):
                    await self._changed.wait()
        except TimeoutError as error:
            raise NotFoundError(f"no tool executor has been heard for {patience_s:.0f} s") from error
        return live

    async def wait_for(self, host: str, *, patience_s: float = 5.0) -> None:
        """Until an executor of `host` is heard, if none ever was; at most `patience_s`."""
        try:
            async with asyncio.timeout(patience_s):
                while host not in self._heard:
                    await self._changed.wait()
        except TimeoutError:
            return

    def _workspace(self, host: str, profile: AgentConfig) -> str:
        if profile.workspace:
            return profile.workspace
        live = self.executors(host)
        return live[0].default_workspace if live else ""

    async def instructions(self, host: str, workspace: str) -> str:
        """The AGENTS.md of a workspace, or nothing if there is none or nobody answers in 300 ms."""
        now = asyncio.get_running_loop().time()
        read_at, text = self._instructions.get((host, workspace), (-INSTRUCTIONS_TTL_S, ""))
        if now - read_at < INSTRUCTIONS_TTL_S:
            return text
        try:
            reply = await self._bus.request(
                subjects.workspace_instructions(host), workspace.encode(), timeout_s=0.3
            )
            text = reply.data.decode("utf-8", "replace")
        except (NotFoundError, BusUnavailableError):
            pass
        self._instructions[host, workspace] = (now, text)
        return text
