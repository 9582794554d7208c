"""One run of the cluster tier, as a process on the machine of the services; see `tier.py`.

nsenter --net=... python -m tests.chaos.cluster.inside <prefix> <folder> <seed> <seconds> [<fault> ...]
"""

import asyncio
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from tests.chaos.api import Api
from tests.chaos.cluster.nemesis import ClusterNemesis
from tests.chaos.cluster.network import Network
from tests.chaos.cluster.probe import Probe
from tests.chaos.driver import Driver, Load
from tests.chaos.nemesis import Nemesis
from tests.chaos.run import keep
from tests.chaos.stack import Shape, Stack
from tests.support.nats_cluster import NatsCluster

LOAD = Load(sessions=4, pause_s=0.4)
SERVICES = {"kill agent": 4, "kill tools": 3, "kill gateway": 2, "kill scheduler": 1, "pause agent": 2}
SERVICE_GAP_S = (2.0, 6.0)
PAUSE_S = (1.0, 4.0)


async def hurt(
    stack: Stack, cluster: NatsCluster, network: Network, seed: int, seconds: float, only: list[str]
) -> None:
    """Talk, hurt and heal, wait until all is quiet, and write down what there is."""
    assert stack.up is not None
    folder = stack.folder
    probe = Probe(cluster.url, folder)
    async with Api(stack.up.base_url, stack.up.token) as api, asyncio.TaskGroup() as tasks:
        driver = Driver(api, folder, seed, replace(LOAD, seconds=seconds))
        nodes = ClusterNemesis(cluster, network, folder, seed, seconds, only)
        services = Nemesis(stack, folder, seed, seconds, SERVICES, pause_s=PAUSE_S, gap_s=SERVICE_GAP_S)
        probing = tasks.create_task(probe.run())
        await driver.open()
        try:
            await asyncio.gather(driver.talk(), nodes.run(), services.run())
            await nodes.heal()
            await services.heal()
            await driver.quiesce()
        finally:
            await nodes.heal()
            probe.stop()
            await probing
            world = await driver.world()
    world["probe"] = [violation._asdict() for violation in probe.violations]
    await keep(stack, world)


def main() -> None:
    """The whole run."""
    prefix, folder, seed, seconds, *only = sys.argv[1:]
    network = Network(prefix)
    place = Path(f"{folder}-nats")  # beside the folder: the nodes are not what the stack may leave behind
    shutil.rmtree(place, ignore_errors=True)
    with NatsCluster(place, network.places()) as cluster:
        shape = Shape(nats=cluster.url, environ=(("FAIRLEAD_NATS_REPLICAS", "3"),))
        with Stack(Path(folder), shape) as stack:
            asyncio.run(hurt(stack, cluster, network, int(seed), float(seconds), only))


if __name__ == "__main__":
    main()
