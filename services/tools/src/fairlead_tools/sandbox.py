"""Where commands run. The runner is the same everywhere; a sandbox is the way it is launched and reached."""

from pathlib import Path
from typing import Protocol

from fairlead_tools.channel import Channel


class Sandbox(Protocol):
    """One kind of boundary."""

    name: str

    async def channel(self, workspace: Path) -> Channel:
        """An open channel to the runner of this workspace, launched if none lives.

        Raises:
            ChannelLostError: none can be reached; the text says why.
        """
