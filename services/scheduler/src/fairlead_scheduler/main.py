"""Wires the scheduler."""

import asyncio
import os
import socket

from fairlead_common.api_service import ApiService
from fairlead_common.bus import Bus
from fairlead_common.config import overrides_from_environment
from fairlead_common.live_config import LiveConfig
from fairlead_common.service import Part, run_service
from fairlead_common.tool_service import ToolService
from fairlead_scheduler.agent_tools import AgentTools
from fairlead_scheduler.api import Api
from fairlead_scheduler.channels import Channels
from fairlead_scheduler.clock import Clock
from fairlead_scheduler.concluding import Concluding
from fairlead_scheduler.definitions import Definitions
from fairlead_scheduler.driving import Driving
from fairlead_scheduler.firing import Firing
from fairlead_scheduler.lead import TTL_S, Lead
from fairlead_scheduler.ledger import Ledger
from fairlead_scheduler.outbox import Outbox
from fairlead_scheduler.performing import Performing
from fairlead_scheduler.post import Post
from fairlead_scheduler.settings import Settings
from fairlead_scheduler.sources.folder import Folder
from fairlead_scheduler.sources.triggers import Triggers
from fairlead_scheduler.store import Store
from fairlead_scheduler.table import Table
from fairlead_scheduler.watching import Watching


async def setup(bus: Bus) -> list[Part]:
    """The parts of this service."""
    config = LiveConfig(bus, overrides_from_environment())
    await config.load()
    clock = Clock()
    changed = asyncio.Event()
    name = os.environ.get("FAIRLEAD_WORKER") or f"scheduler-{socket.gethostname()}-{os.getpid()}"
    settings = Settings(bus, config, changed.set)
    table, store, ledger, post = Table(), Store(bus), Ledger(bus, settings), Post(bus)
    ttl_s = float(os.environ.get("FAIRLEAD_SCHEDULER_LEASE_S", TTL_S))
    lead = Lead(bus, name, changed.set, ttl_s=ttl_s)
    concluding = Concluding(store, ledger, post, settings, clock)
    outbox = Outbox(bus, ledger, post, Channels(bus, post, settings), lead, clock)
    driving = Driving(bus, store, ledger, post, concluding, outbox, lead, settings, clock)
    watching = Watching(bus, table, lead, clock, changed.set)
    firing = Firing(bus, table, lead, settings, clock, changed)
    firing.seen_revision = lambda: watching.revision
    performing = Performing(bus, store, ledger, post, concluding, config, clock)
    triggers = Triggers(bus, store, post, settings, clock)
    definitions = Definitions(store, table, settings, clock)
    folder = Folder(definitions, store, post, settings, table)
    api = Api(definitions, store, ledger, post, table, lead, firing, outbox, settings, triggers, clock)

    await firing.load()
    await settings.load()
    watching.configured(config.current)
    config.on_change(watching.configured)
    config.on_change(lambda _: triggers.look())
    config.on_change(lambda _: folder.look())

    async def wake_at_stop(stop: asyncio.Event) -> None:
        await stop.wait()
        changed.set()
        for part in (settings, outbox, driving, watching, triggers, folder):
            part.look()

    return [
        wake_at_stop,
        config.follow,
        settings.run,
        watching.run,
        lead.run,
        _after(watching.ready, firing.run),
        performing.run,
        driving.run,
        outbox.run,
        triggers.run,
        _after(watching.ready, folder.run),
        ApiService(bus, "scheduler", api.methods()).run,
        ToolService(bus, "scheduler", AgentTools(api).tools()).run,
    ]


def _after(ready: asyncio.Event, run: Part) -> Part:
    """The part, begun once `ready` is set."""

    async def later(stop: asyncio.Event) -> None:
        await ready.wait()
        await run(stop)

    return later


def main() -> None:
    """Run the service."""
    run_service("scheduler", setup)


if __name__ == "__main__":
    main()
