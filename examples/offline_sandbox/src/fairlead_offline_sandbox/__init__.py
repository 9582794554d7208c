"""The sandbox `offline`: as `local`, but in a network namespace of its own, in which there is nothing."""

import shutil
import subprocess

from fairlead_common.protocol.messages import SandboxAttributes
from fairlead_tools.sandboxes.extension_kinds import SandboxSetup
from fairlead_tools.sandboxes.local import LocalSandbox

UNSHARE = ("unshare", "--user", "--map-current-user", "--net", "--")


class OfflineSandbox(LocalSandbox):
    """Runners that `unshare` starts. It keeps commands from the network, and from nothing else."""

    name = "offline"
    prefix = UNSHARE

    def attributes(self) -> SandboxAttributes:
        """No network. Commands see all of the host, so it does not confine them."""
        return SandboxAttributes(strength=5, is_networked=False)

    def unavailable(self) -> str:
        """Why it cannot be used here."""
        return "" if shutil.which(UNSHARE[0]) else f"{UNSHARE[0]} (of util-linux) is not installed"


def offline(setup: SandboxSetup) -> OfflineSandbox:
    """The factory. It fails where the kernel makes no namespaces for this user: the kind is not offered."""
    subprocess.run([*UNSHARE, "true"], check=True, capture_output=True, timeout=10)
    return OfflineSandbox(setup.state, setup.tasks)
