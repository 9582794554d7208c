"""Three machines for NATS and one for the services, as network namespaces on one switch; and how to cut them.

Needs root. Everything is in namespaces that are named after the process, the switch too: nothing of the
machine's own network is touched.
"""

import contextlib
import os
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from tests.support.nats_cluster import NODES, Place

SERVICES: Final = "services"
NAMES: Final = (*(f"n{number}" for number in range(1, NODES + 1)), SERVICES)
_ADDRESS: Final = {name: f"10.77.0.{number}" for number, name in enumerate(NAMES, start=1)}
_CLIENTS, _ROUTES, _MONITOR = 4222, 6222, 8222


def run(*words: str) -> str:
    """The output of a command that must work.

    Raises:
        subprocess.CalledProcessError: it did not.
    """
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=20).stdout


class Network:
    """Use as a context manager. Packets are dropped where they would arrive."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix or f"fl{os.getpid()}"

    def namespace(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def __enter__(self) -> "Network":
        try:
            switch = self.namespace("switch")
            run("ip", "netns", "add", switch)
            run("ip", "-n", switch, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
            run("ip", "-n", switch, "link", "set", "br0", "up")
            for name in NAMES:
                self._join(switch, name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _join(self, switch: str, name: str) -> None:
        inside = self.namespace(name)
        run("ip", "netns", "add", inside)
        run("ip", "-n", switch, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", inside)
        run("ip", "-n", switch, "link", "set", name, "master", "br0", "up")
        run("ip", "-n", inside, "address", "add", f"{_ADDRESS[name]}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            run("ip", "-n", inside, "link", "set", link, "up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in (*NAMES, "switch"):
            with contextlib.suppress(subprocess.SubprocessError):
                run("ip", "netns", "del", self.namespace(name))

    def places(self) -> list[Place]:
        """Where the nodes listen, and how they are launched there."""
        return [
            Place(_ADDRESS[name], _CLIENTS, _ROUTES, _MONITOR, tuple(self.words(name)))
            for name in NAMES[:NODES]
        ]

    def words(self, name: str) -> list[str]:
        """Before a command line that shall run on this machine."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(name)}", "--"]

    # -- cuts ----------------------------------------------------------------

    def drop(self, source: str, target: str) -> None:
        """Let nothing of `source` arrive at `target`."""
        self._iptables(target, "-A", "INPUT", "-s", _ADDRESS[source], "-j", "DROP")

    def allow(self, source: str, target: str) -> int:
        """Undo one `drop`; how many packets it had dropped."""
        dropped = self.dropped(source, target)
        self._iptables(target, "-D", "INPUT", "-s", _ADDRESS[source], "-j", "DROP")
        return dropped

    def dropped(self, source: str, target: str) -> int:
        """How many packets have been dropped on this way by the rules that are in force."""
        listed = self._iptables(target, "-nvxL", "INPUT")
        return sum(
            int(words[0])
            for words in map(str.split, listed.splitlines())
            if len(words) > 7 and words[2] == "DROP" and words[7] == _ADDRESS[source]
        )

    def heal(self) -> None:
        """Let everything through again."""
        for name in NAMES:
            self._iptables(name, "-F", "INPUT")

    def _iptables(self, name: str, *words: str) -> str:
        return run(*self.words(name), "iptables", "-w", "5", *words)


def both_ways(ones: Sequence[str], others: Sequence[str]) -> list[tuple[str, str]]:
    """All ways between the two."""
    pairs = [(one, other) for one in ones for other in others if one != other]
    return [way for one, other in pairs for way in ((one, other), (other, one))]
