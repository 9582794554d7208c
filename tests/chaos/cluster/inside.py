"""A block of runs of the cluster tier on one stack: a process on the machine of the services, see `tier.py`.

nsenter --net=... python -m tests.chaos.cluster.inside <prefix> <folder> <seconds> <fault,...> <seed> ...
"""

import asyncio
import json
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path

from tests.chaos.api import Api
from tests.chaos.cluster.nemesis import ClusterNemesis
from tests.chaos.cluster.network import Network
from tests.chaos.cluster.probe import Probe
from tests.chaos.driver import Driver, Load
from tests.chaos.nemesis import Nemesis
from tests.chaos.stack import Shape, Stack
from tests.support.nats_cluster import NatsCluster

LOAD = Load(sessions=4, pause_s=0.4)
SERVICES = {"kill agent": 4, "kill tools": 3, "kill gateway": 2, "kill scheduler": 1, "pause agent": 2}
SERVICE_GAP_S = (2.0, 6.0)
PAUSE_S = (1.0, 4.0)


class Slices:
    """What the logs that outlive a run got during it."""

    def __init__(self, stack: Stack) -> None:
        assert stack.up is not None
        self._sources = {
            "ledger.log": stack.up.workspace / "ledger.log",
            "model.jsonl": stack.folder / "model.jsonl",
        }
        self._starts = {name: _size(path) for name, path in self._sources.items()}

    def write(self, folder: Path) -> None:
        """Into the files of these names."""
        for name, path in self._sources.items():
            if path.exists():
                (folder / name).write_bytes(path.read_bytes()[self._starts[name] :])


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


async def hurt(
    stack: Stack,
    cluster: NatsCluster,
    network: Network,
    folder: Path,
    seed: int,
    seconds: float,
    only: list[str],
) -> None:
    """Talk, hurt and heal, wait until all is quiet, and write down what there is."""
    assert stack.up is not None
    slices = Slices(stack)
    probe = Probe(cluster.url, folder, f"probe-{seed}")
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
    slices.write(folder)
    world["probe"] = [violation._asdict() for violation in probe.violations]
    world["leftovers"] = []
    (folder / "world.json").write_text(json.dumps(world))


def main() -> None:
    """All runs of the block, one after the other; what outlives the stop is told of the last one."""
    prefix, root, seconds, only, *seeds = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not without ending what was started
    network = Network(prefix)
    stacks = Path(root) / f"stack-{seeds[0]}"
    place = stacks.with_name(
        f"nats-{seeds[0]}"
    )  # beside it: the nodes are not what the stack may leave behind
    for each in (stacks, place):
        shutil.rmtree(each, ignore_errors=True)
    with NatsCluster(place, network.places()) as cluster:
        shape = Shape(nats=cluster.url, environ=(("FAIRLEAD_NATS_REPLICAS", "3"),))
        with Stack(stacks, shape) as stack:
            folder = Path(root)
            for seed in seeds:
                folder = Path(root) / f"seed-{seed}"
                faults = [name for name in only.split(",") if name]
                asyncio.run(hurt(stack, cluster, network, folder, int(seed), float(seconds), faults))
                print(f"seed {seed} is over", flush=True)
            assert stack.up is not None
            stack.up.stop()
            world = json.loads((folder / "world.json").read_text())
            world["leftovers"] = stack.leftovers()
            (folder / "world.json").write_text(json.dumps(world))
            print("over", flush=True)


if __name__ == "__main__":
    main()
