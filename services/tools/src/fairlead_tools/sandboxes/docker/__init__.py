"""The sandbox `docker`: a runner as the main process of a container, one container for each place."""

from fairlead_tools.sandboxes.docker.sandbox import DockerSandbox
from fairlead_tools.sandboxes.docker.spares import expected_places

__all__ = ["DockerSandbox", "expected_places"]
