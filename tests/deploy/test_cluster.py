"""deploy/cluster as an operator runs it: three servers in containers, services beside them, one killed."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.asking import ask, told
from tests.deploy.deployment import NEEDS_COMPOSE, RECOVERY_S, SETTINGS
from tests.deploy.load import loaded
from tests.deploy.machines import ClusterDeployment, Machines
from tests.support.waiting import eventually

pytestmark = NEEDS_COMPOSE

LOCAL = {name: value for name, value in SETTINGS.items() if name != "agents.boxed"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterDeployment, Machines]]:
    """Three servers that were just started, and services that were told of them."""
    folder = tmp_path_factory.mktemp("cluster")
    deployment = ClusterDeployment(folder, LOCAL)
    deployment.make_secrets()
    machines = Machines(folder, deployment.secrets)
    try:
        print(f"up --wait: {deployment.start_beside(machines):.1f} s")
        yield deployment, machines
    finally:
        deployment.remove()
        machines.remove()


async def copies(deployment: ClusterDeployment, current: int) -> None:
    """Until so many copies of the log are current.

    Raises:
        TimeoutError: not in time.
    """
    async with deployment.gateway() as gateway, asyncio.timeout(RECOVERY_S):
        while True:
            ready = await gateway.request("GET", "/readyz")
            if ready.status == 200 and ready.body.get("replicas") == {"current": current, "wanted": 3}:
                return
            await asyncio.sleep(0.2)


async def test_three_servers_and_services_made_from_nothing_answer_through_a_tool(
    cluster: tuple[ClusterDeployment, Machines],
) -> None:
    deployment, _ = cluster
    async with deployment.gateway() as gateway:
        await ask(gateway, "first", "run: echo through $((40 + 2)) servers")
        answer = await told(gateway, "first")
    assert answer.statuses == ["ok"]
    assert "through 42 servers" in answer.answer
    await copies(deployment, 3)
    wrong: list[dict[str, Any]] = []

    def well() -> bool:  # a copy of what is written all the time may be behind at that very moment
        wrong[:] = deployment.wrong_about_servers()
        return not wrong

    await asyncio.to_thread(eventually, well, lambda: f"doctor finds nothing, not: {wrong}", RECOVERY_S)


async def test_the_server_that_leads_is_killed_under_load_and_nothing_is_lost(
    cluster: tuple[ClusterDeployment, Machines],
) -> None:
    deployment, machines = cluster
    async with loaded(deployment, "led") as load:
        leader = await asyncio.to_thread(machines.leader_of, "SESSIONS")
        await asyncio.to_thread(machines.kill, leader)
        await load.more(4)
        await copies(deployment, 2)
        wrong = await asyncio.to_thread(deployment.wrong_about_servers)
        silent = [each["text"] for each in wrong if each["check"] == "nats.server"]
        assert [each.partition(": ")[0] for each in silent] == [f"no answer from {leader}"]
        told_again = await asyncio.to_thread(machines.send)
        assert sorted(told_again) == ["as it was", "as it was", "started"]
        await copies(deployment, 3)
        await load.more(2)
    assert load.statuses == {"ok"}


ASK = """
import asyncio, nats, os, ssl, sys
async def main():
    trusted = ssl.create_default_context(cafile=os.environ["FAIRLEAD_NATS_CA"])
    for url in os.environ["FAIRLEAD_NATS_URL"].split(","):
        who = {"nkeys_seed_str": sys.argv[1], "inbox_prefix": "_INBOX.alerts"}
        client = await nats.connect(url, **who, tls=trusted)
        inbox = client.new_inbox()
        heard = await client.subscribe(inbox)
        answer_to = {"Fairlead-Reply-To": inbox}
        await client.request("fairlead.prompt.alerted", b"hello", headers=answer_to, timeout=10)
        await heard.next_msg(timeout=30)
        print("answered")
        await client.close()
asyncio.run(main())
"""


def test_a_user_that_is_added_is_known_to_all_servers_and_a_killed_one_comes_back_by_itself(
    cluster: tuple[ClusterDeployment, Machines],
) -> None:
    deployment, machines = cluster
    said = deployment.nats_user("add", "alerts", "--session", "alerted")
    for words in (",".join(f"nats://{each}" for each in machines.addresses), f"{machines.folder}/ca.pem"):
        assert words in said
    machines.make()
    assert machines.send() == ["restarted, and current"] * 3
    seed = (deployment.secrets / "nats-alerts.nk").read_text().strip()
    assert deployment.run_in("gateway", "python", "-c", ASK, seed, timeout_s=90) == "answered\n" * 3

    first = machines.addresses[0]
    machines.crash(first)
    eventually(lambda: machines.server(first)["RestartCount"] == 1, "the engine starts it again")
