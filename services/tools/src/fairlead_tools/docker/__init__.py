"""The sandbox `docker`: a runner as the main process of a container, one container for each place."""

from fairlead_tools.docker.sandbox import DockerSandbox
from fairlead_tools.docker.spares import expected_places

__all__ = ["DockerSandbox", "expected_places"]
