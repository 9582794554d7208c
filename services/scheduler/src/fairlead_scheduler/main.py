"""Wires the scheduler."""

import asyncio

from fairlead_common.bus import Bus
from fairlead_common.service import Part, run_service


async def _idle(stop: asyncio.Event) -> None:
    await stop.wait()


async def setup(bus: Bus) -> list[Part]:  # noqa: ARG001
    """The parts of this service."""
    return [_idle]


def main() -> None:
    """Run the service."""
    run_service("scheduler", setup)


if __name__ == "__main__":
    main()
