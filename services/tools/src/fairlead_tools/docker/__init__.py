"""The sandbox `docker`: a runner as the main process of a container, one container for each place."""

from fairlead_tools.docker.sandbox import DockerSandbox

__all__ = ["DockerSandbox"]
