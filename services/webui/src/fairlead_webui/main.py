"""Wires the service that hands out the files of the web application."""

from fairlead_common.bus import Bus
from fairlead_common.service.process import ServicePart, run_service
from fairlead_webui.files import load
from fairlead_webui.server import FileServer
from fairlead_webui.sources import SourcesWatch


async def setup(bus: Bus) -> list[ServicePart]:
    """The parts of this service."""
    return [FileServer(bus, load()).run, SourcesWatch().run]


def main() -> None:
    """Run the service."""
    run_service("webui", setup)


if __name__ == "__main__":
    main()
