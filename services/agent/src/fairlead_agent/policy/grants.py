"""What people allowed for good (`always`): keys of the bucket `config`, kept in memory."""

import asyncio

import msgspec

from fairlead_agent.policy.approval_scopes import keys_of
from fairlead_common.bus import Bus
from fairlead_common.bus.buckets import Bucket
from fairlead_common.bus.tail import Tail, TailSource
from fairlead_common.protocol import subjects
from fairlead_common.protocol.entries import ApprovalRequestEntry
from fairlead_common.received import Record


class Grants:
    """Follows `grant.<agent>.<key>`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bucket = Bucket(bus, subjects.BUCKET_CONFIG)
        self._granted: dict[str, set[str]] = {}

    def of(self, agent: str) -> set[str]:
        """The keys that are granted to an agent."""
        return self._granted.get(agent, set())

    async def add(self, agent: str, request: ApprovalRequestEntry) -> None:
        """Allow the same call for good. Safe to repeat."""
        shown = {"tool": request.tool, "arguments": request.arguments, "grants": request.grants.get("always")}
        for key in keys_of(request):
            self._granted.setdefault(agent, set()).add(key)
            await self._bucket.put(f"grant.{agent}.{key}", msgspec.json.encode(shown))

    async def follow(self, stop: asyncio.Event) -> None:
        """A part of the service: keep up with what other workers and the command line grant."""
        name = subjects.BUCKET_CONFIG
        source = TailSource(subjects.kv_stream(name), f"$KV.{name}.grant.>", 1)

        async with Tail(self._bus, f"fairlead.kv.{name}.>", [source], lambda _: 0) as tail:
            await tail.follow(stop, self._note)

    def _note(self, _: int, record: Record) -> None:
        tokens = record.subject.split(".")  # $KV.config.grant.<agent>.<key>
        if len(tokens) != 5 or tokens[2] != "grant":
            return
        granted = self._granted.setdefault(tokens[3], set())
        if "KV-Operation" in record.headers:  # it was deleted: taken back
            granted.discard(tokens[4])
        else:
            granted.add(tokens[4])
