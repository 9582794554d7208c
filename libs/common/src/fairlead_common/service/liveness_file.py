"""A file that is fresh while this process answers over NATS; `healthcheck.py` looks at it."""

import asyncio
import contextlib
import os
from pathlib import Path

import structlog

from fairlead_common.bus import Bus
from fairlead_common.errors import FairleadError

log = structlog.get_logger()

VARIABLE = "FAIRLEAD_PULSE_FILE"
PERIOD_S = 2.0
ANSWER_WITHIN_S = 2.0


async def keep_liveness_file(bus: Bus, service: str, instance: str) -> None:
    """Ask this very instance `$SRV.PING` over NATS, for ever; each answer makes the file fresh.

    Does nothing where `FAIRLEAD_PULSE_FILE` names no file.

    Args:
        instance: id of the NATS micro service, so that no replica answers in its place.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return
    path = Path(named)
    subject = f"$SRV.PING.fairlead-{service}.{instance}"
    while True:
        try:
            await bus.request(subject, b"", timeout_s=ANSWER_WITHIN_S)
            await asyncio.to_thread(path.write_text, f"{instance}\n", "ascii")
        except (FairleadError, OSError) as error:
            log.warning("liveness_check_failed", error=str(error))
        await asyncio.sleep(PERIOD_S)


def remove_liveness_file() -> None:
    """Remove the file of a process that has ended."""
    if named := os.environ.get(VARIABLE):
        with contextlib.suppress(OSError):
            Path(named).unlink(missing_ok=True)
