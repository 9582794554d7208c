"""Makes the streams and durable consumers that are missing."""

from fairlead_common.bus import streams
from fairlead_common.bus.bus import Bus
from fairlead_common.protocol import subjects as s


async def everything(bus: Bus, hosts: list[str]) -> None:
    """Make what is missing for all services, and for the executors of `hosts`. Safe to repeat.

    Raises:
        UnsafeConfigurationError, BusUnavailableError, ForbiddenError: as for `streams.provision`.
    """
    await streams.provision(bus)
    for host in hosts:
        await for_host(bus, host)


async def for_host(bus: Bus, host: str) -> None:
    """Make what the executors of a host need. Safe to repeat."""
    await streams.ensure_consumer(
        bus, s.TOOLS, s.tools_consumer(host), s.tool_requests(host), ack_wait_s=streams.TOOLS_WAIT_S
    )
