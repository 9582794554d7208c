"""Makes the streams and durable consumers that are missing, and ends: `python -m fairlead_common.provision`.

The services may use what is there and nothing else; only the user `provisioner` makes or widens it. Hosts
whose executors are to be served are named in `FAIRLEAD_HOSTS`, with commas between them.
"""

import os
import sys

import structlog
import uvloop

from fairlead_common.bus import Bus
from fairlead_common.bus.provisioner import everything
from fairlead_common.bus.retry import patiently
from fairlead_common.bus.settings import settings_from_environment
from fairlead_common.errors import (
    EXIT_CONFIG,
    AccessRefusedError,
    FairleadError,
    InvalidInputError,
    RetryableError,
    UnsafeConfigurationError,
)
from fairlead_common.protocol.ids import check_id
from fairlead_common.service.logs import configure_logs

log = structlog.get_logger()


async def _run() -> None:
    hosts = [
        check_id(host, "FAIRLEAD_HOSTS") for host in os.environ.get("FAIRLEAD_HOSTS", "").split(",") if host
    ]
    bus = await Bus.connect(settings_from_environment(), name="provisioner")
    try:
        await patiently(lambda: everything(bus, hosts))
    finally:
        await bus.close()
    log.info("provisioned", hosts=hosts)


def main() -> None:
    """Exit status 0 when all is there, 78 for what must not be changed by itself, 1 for the rest."""
    configure_logs("provisioner", level=os.environ.get("FAIRLEAD_LOG_LEVEL", "info"))
    try:
        uvloop.run(_run())
    except (UnsafeConfigurationError, InvalidInputError, AccessRefusedError) as error:
        log.error("configuration_refused", error=str(error))
        sys.exit(EXIT_CONFIG)
    except RetryableError as error:
        log.error("bus_unavailable", error=str(error))
        sys.exit(1)
    except FairleadError as error:
        log.error("provisioning_failed", error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
