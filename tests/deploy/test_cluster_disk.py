"""Disks of servers of a cluster are full: the others go on, or nothing is accepted; space alone mends it."""

import asyncio
import contextlib
import os
from collections.abc import Iterator

import pytest

from tests.deploy.deployment import NEEDS_COMPOSE, RECOVERY_S, USER
from tests.deploy.load import loaded
from tests.deploy.machines import ClusterDeployment, Machines
from tests.deploy.test_cluster import LOCAL, copies
from tests.support.small_disk import SmallDisk
from tests.support.waiting import eventually

pytestmark = NEEDS_COMPOSE


class Small(ClusterDeployment):
    """Its servers' stores are on disks that can be filled, by the address of the machine."""

    machines: Machines
    disks: dict[str, SmallDisk]

    def said(self, address: str) -> str:
        """What the health check of a server said last."""
        return str(self.machines.server(address)["State"]["Health"]["Log"][-1]["Output"])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    folder = tmp_path_factory.mktemp("small")
    with contextlib.ExitStack() as stack:
        deployment = Small(folder, LOCAL)
        deployment.make_secrets()
        deployment.machines = machines = Machines(folder, deployment.secrets)
        deployment.disks = {
            address: stack.enter_context(SmallDisk(folder / f"disk-{address}", size_mib=256))
            for address in machines.addresses
        }
        stack.callback(machines.remove)
        stack.callback(deployment.remove)
        for disk in deployment.disks.values():
            os.chown(disk.folder, USER, USER)
        machines.put_stores_on({address: disk.folder for address, disk in deployment.disks.items()})
        deployment.start_beside(machines)
        yield deployment


async def test_the_leader_whose_disk_is_full_is_followed_by_another_and_comes_back_with_space(
    small: Small,
) -> None:
    async with loaded(small, "one") as load:
        leader = await asyncio.to_thread(small.machines.leader_of, "SESSIONS")
        small.disks[leader].fill()
        await copies(small, 2)
        await asyncio.to_thread(
            eventually,
            lambda: "the disk of the store is full" in small.said(leader),
            lambda: f"its health says so, not: {small.said(leader)}\n{small.machines.logs(leader)}",
        )
        await load.more(4)
        await asyncio.to_thread(
            eventually,
            lambda: {each["check"] for each in small.wrong_about_servers()} == {"streams.replicas"},
            lambda: f"all is led by others, and doctor names it alone, not: {small.wrong_about_servers()}",
            RECOVERY_S,
        )
        small.disks[leader].free()
        await copies(small, 3)
        await load.more(2)
    assert load.statuses == {"ok"}


async def test_when_all_disks_are_full_nothing_is_accepted_and_space_alone_mends_it(small: Small) -> None:
    async with loaded(small, "all") as load, small.gateway() as gateway:
        assert (await gateway.request("POST", "/api/sessions", {"id": "refused"})).accepted
        for disk in small.disks.values():
            disk.fill()
        async with asyncio.timeout(RECOVERY_S):
            while (await gateway.request("GET", "/readyz", patience_s=0)).status == 200:
                await asyncio.sleep(0.2)
        assert (await asyncio.to_thread(small.try_prompt, "refused", "k"))[0] == 503
        for disk in small.disks.values():
            disk.free()
        await copies(small, 3)
        await load.more(2)
        assert (await asyncio.to_thread(small.try_prompt, "refused", "k"))[0] == 202
    assert load.statuses == {"ok"}
