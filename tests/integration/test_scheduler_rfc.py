"""The examples of the scheduler's RFC, as they stand there, on a day when they were still ahead."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead_common.bus import Bus
from tests.integration.gateway_fixture import TOKEN, RunningGateway, running_gateway
from tests.support.nats_server import NatsServer
from tests.support.scheduler_process import FAKETIME, SchedulerProcess
from tests.support.scheduler_world import mail
from tests.support.waiting import until

ONE_SHOT = """
fairlead cron add \\
  --at "2025-12-14T07:00:00-08:00" \\
  --session main \\
  --wake now \\
  --system-event "Alarm: wake up (meeting in 30 minutes)."
"""
DAILY = """
fairlead cron add \\
  --cron "0 7 * * *" \\
  --tz "America/Los_Angeles" \\
  --session isolated \\
  --wake now \\
  --message "Daily check: scan calendar + inbox; deliver only if urgent." \\
  --deliver \\
  --channel last
"""
WEEKLY = """
fairlead cron add \\
  --cron "0 9 * * 3" \\
  --tz "America/Los_Angeles" \\
  --session isolated \\
  --wake now \\
  --message "Weekly: summarize status and remind me of goals." \\
  --deliver \\
  --channel last
"""
NEXT_HEARTBEAT = """
fairlead wake --mode next-heartbeat --text "Next heartbeat: check battery + upcoming meetings."
"""

pytestmark = pytest.mark.skipif(
    not FAKETIME.exists(), reason="libfaketime is not installed (Debian: faketime)"
)


@pytest.fixture
async def gateway(bus: Bus, nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[RunningGateway]:
    process = SchedulerProcess(nats_server.url, tmp_path, "s1", {}, clock="@2025-12-13 20:00:00").start()
    try:
        async with running_gateway(nats_server.url, tmp_path) as running:

            async def answers() -> bool:
                return (await running.call("GET", "/api/cron/status"))[0] == 200

            await until(answers)
            yield running
    finally:
        process.stop()


async def typed(gateway: RunningGateway, text: str, *more: str) -> str:
    """What a line of a shell prints."""
    words = shlex.split(text.replace("\\\n", " "))
    assert words[0] == "fairlead"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fairlead.main", *words[1:], *more),
        env={
            "PATH": os.environ["PATH"],
            "FAIRLEAD_URL": gateway.url,
            "FAIRLEAD_TOKEN": TOKEN,
            "HOME": "/nonexistent",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def added(gateway: RunningGateway, text: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(await typed(gateway, text, "--json"))
    return answer


async def test_run_once_at_a_specific_time(gateway: RunningGateway) -> None:
    answer = await added(gateway, ONE_SHOT)
    assert answer["job"]["schedule"] == {"kind": "at", "atMs": 1765724400000}
    assert (answer["job"]["sessionTarget"], answer["job"]["wakeMode"]) == ("main", "now")
    assert answer["preview"]["nextRunAtMs"] == [1765724400000]


async def test_run_daily_follows_the_calendar_of_its_zone(gateway: RunningGateway) -> None:
    answer = await added(gateway, DAILY)
    assert [text[:16] for text in answer["preview"]["local"][:2]] == ["2025-12-14T07:00", "2025-12-15T07:00"]
    payload = answer["job"]["payload"]
    assert (payload["kind"], payload["deliver"], payload["channel"]) == ("agentTurn", True, "last")


async def test_run_weekly_means_wednesday(gateway: RunningGateway) -> None:
    answer = await added(gateway, WEEKLY)
    assert [text[:16] for text in answer["preview"]["local"][:2]] == ["2025-12-17T09:00", "2025-12-24T09:00"]


async def test_next_heartbeat_leaves_a_line_and_wakes_nobody(gateway: RunningGateway, bus: Bus) -> None:
    await typed(gateway, NEXT_HEARTBEAT)
    found = await mail(bus, "main")
    assert [body["text"] for _, body in found] == ["Next heartbeat: check battery + upcoming meetings."]
    assert not [key for key, _ in found if key.startswith("heartbeat-")]


async def test_every_command_of_the_surface_is_there(gateway: RunningGateway) -> None:
    name = (await added(gateway, DAILY))["job"]["id"]
    assert name in await typed(gateway, "fairlead cron list --json --all")
    for line in (
        f"fairlead cron edit {name} --name renamed",
        f"fairlead cron disable {name}",
        f"fairlead cron enable {name}",
        f"fairlead cron run {name} --force",
        f"fairlead cron runs --id {name} --limit 5",
        "fairlead cron status",
        f"fairlead cron rm {name}",
    ):
        await typed(gateway, line)
