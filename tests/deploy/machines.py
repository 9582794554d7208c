"""Three machines with NATS, imitated on one engine: an address and a compose project each."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.deploy.deployment import ROOT, SERVICES, Deployment
from tests.support.containers import api

CLUSTER: Final = ROOT / "deploy/cluster"
# ssh <address> <command>: a login on that machine, whose home is a folder here.
SSH = """\
#!/bin/sh
machine=$1 && shift
mkdir -p "{homes}/$machine" && cd "{homes}/$machine" || exit 255
export COMPOSE_PROJECT_NAME={project}-$(echo "$machine" | tr . -)
exec sh -c "$*"
"""


class Machines:
    """They are reached at addresses that this machine has in three networks, where their ports are published.

    Args:
        folder: for what make-cluster makes, and the homes on the machines.
        secrets: with the users of the servers.
    """

    starts = "docker"

    def __init__(self, folder: Path, secrets: Path) -> None:
        self.folder = folder / "cluster"
        self._homes = folder / "homes"
        self._project = "flm" + os.urandom(4).hex()
        self._ssh = folder / "ssh"
        self._ssh.write_text(SSH.format(homes=self._homes, project=self._project))
        self._ssh.chmod(0o755)
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FAIRLEAD_", "COMPOSE_"))
        }
        self._environment = {**own, "FAIRLEAD_SECRETS": str(secrets), "FAIRLEAD_SSH": str(self._ssh)}
        self.addresses = [self._address(number) for number in (1, 2, 3)]

    def _address(self, number: int) -> str:
        name = f"{self._project}-{number}"
        api().create_network(name, labels={"fairlead.test": self._project})
        return str(api().inspect_network(name)["IPAM"]["Config"][0]["Gateway"])

    def make(self) -> dict[str, str]:
        """Run make-cluster; the settings that it says services need."""
        addresses = [] if self.folder.exists() else self.addresses
        said = self._run(CLUSTER / "make-cluster", self.folder, *addresses)
        lines = said.partition("for .env")[2].splitlines()[1:]
        return dict(line.split("=", 1) for line in lines)

    def send(self) -> list[str]:
        """Run send-cluster; what it says of each machine."""
        try:
            said = self._run(CLUSTER / "send-cluster", self.folder, timeout_s=240)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._ends()}") from None
        return [line.partition(": ")[2] for line in said.splitlines()]

    def run(self, address: str, *words: str) -> str:
        """What `docker compose <words>` says on a machine."""
        return self._run(self._ssh, address, f"cd fairlead-nats && docker compose {' '.join(words)}")

    def put_stores_on(self, disks: dict[str, Path]) -> None:
        """Each machine's store in a folder of another disk; before the first `send`."""
        for address, folder in disks.items():
            home = self._homes / address / "fairlead-nats"
            home.mkdir(parents=True)
            place = {"driver_opts": {"type": "none", "o": "bind", "device": str(folder)}}
            (home / "compose.override.yaml").write_text(json.dumps({"volumes": {"store": place}}))

    def kill(self, address: str) -> None:
        """kill -9 of the server: as if the machine were gone, for the engine starts it no more."""
        self.run(address, "kill", "nats")

    def crash(self, address: str) -> None:
        """End all processes of the server's container, as the kernel would that has no memory left."""
        self.run(address, "exec", "-T", "nats", "sh", "-c", "'kill -9 -1'", "||", "true")

    def server(self, address: str) -> dict[str, Any]:
        """What the engine knows of the server's container."""
        found = api().containers(all=True, filters={"id": self.run(address, "ps", "-aq", "nats").strip()})
        return dict(api().inspect_container(found[0]["Id"]))

    def logs(self, address: str) -> str:
        """The end of what a server said."""
        return self.run(address, "logs", "--no-log-prefix", "--tail", "25", "nats")

    def leader_of(self, stream: str) -> str:
        """The address of the machine that leads a stream.

        Raises:
            LookupError: none does now.
        """
        look = ("exec", "-T", "nats", "wget", "-qO-", "'http://127.0.0.1:8222/jsz?streams=true'")
        told: dict[str, Any] = json.loads(self.run(self.addresses[0], *look))
        for account in told["account_details"]:
            for each in account.get("stream_detail", []):
                if each["name"] == stream and (name := each.get("cluster", {}).get("leader")):
                    return self.addresses[int(name.removeprefix("n")) - 1]
        raise LookupError(stream)

    def remove(self) -> None:
        """All that is on them, and they."""
        for address in self.addresses:
            if (self._homes / address / "fairlead-nats/compose.yaml").exists():
                self.run(address, "down", "-v", "-t", "0")
        for network in api().networks(filters={"label": f"fairlead.test={self._project}"}):
            api().remove_network(network["Id"])

    def _ends(self) -> str:
        """Of what the servers said, and how often each was started again."""
        ends = []
        for address in self.addresses:
            state = self.server(address)
            ends.append(
                f"{address}: {state['RestartCount']} restarts, {state['State']}\n{self.logs(address)}"
            )
        return "\n".join(ends)

    def _run(self, *command: object, timeout_s: float = 120) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(
            words, env=self._environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-1000:]}{done.stderr[-3000:]}"
        return done.stdout


class ClusterDeployment(Deployment):
    """The services of compose.yaml beside three machines, with the settings that make-cluster told."""

    def build(self) -> None:
        """All images but that of the server."""
        for service in SERVICES:
            if service != "nats":
                self.compose("build", "-q", service, timeout_s=600)

    def start_beside(self, machines: Machines) -> float:
        """Make servers and services from nothing; the seconds that the services took."""
        for name, value in machines.make().items():
            self.set(name, value)
        self.build()
        assert machines.send() == ["started"] * 3
        return self.up()

    def wrong_about_servers(self) -> list[dict[str, Any]]:
        """What doctor finds wrong with them and their streams."""
        return [
            each
            for each in self.doctor("run", "--rm", "--no-deps", "-T", "cli")
            if each["state"] in ("warning", "problem") and each["group"] in ("nats", "streams")
        ]
