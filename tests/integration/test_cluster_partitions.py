"""A server that was cut off from the others answers its clients as if nothing had happened."""

import asyncio
import contextlib
import ctypes
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.retry import patiently
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.errors import BusUnavailableError, NotFoundError
from fairlead_common.protocol import subjects as s
from tests.chaos.cluster.network import SERVICES, Network, both_ways
from tests.support.nats_cluster import NatsCluster, Node, namespaces_work

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not namespaces_work(), reason="network namespaces need root, ip and iptables"),
]

_NETWORK = 0x4000_0000  # CLONE_NEWNET


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


def on_machine(network: Network, name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` in a thread that has the network of this machine."""
    failed: list[BaseException] = []

    def run() -> None:
        handle = os.open(f"/run/netns/{network.namespace(name)}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(handle, _NETWORK):
                raise OSError(ctypes.get_errno(), "setns")
            asyncio.run(work())  # type: ignore[arg-type] # a coroutine
        except BaseException as error:  # raised below
            failed.append(error)
        finally:
            os.close(handle)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(150)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


async def connect(*urls: str) -> Bus:
    """To the first of them; the others are there to turn to."""
    return await Bus.connect(BusSettings(",".join(urls), replicas=3), name="test")


def test_reads_at_a_server_that_was_cut_off_never_show_the_past(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.sample", lambda population, _: list(population))

    async def work() -> None:
        with NatsCluster(tmp_path, network.places()) as cluster:
            leader, alone = await _start(cluster)
            others = [node for node in cluster.nodes if node is not alone]
            at_alone = await connect(alone.url)
            may_turn = await connect(alone.url, *(node.url for node in others))
            writer = await connect(leader.url)
            log = s.session_log("a")
            first = await writer.append(s.SESSIONS, log, b"old", record_id="1", expected=0)
            for bus in (at_alone, may_turn):
                there = await bus.last(s.SESSIONS, log)
                assert there is not None
                assert there.data == b"old"

            for way in both_ways([alone.name], [node.name for node in others]):
                network.drop(*way)
            await writer.append(s.SESSIONS, log, b"new", record_id="2", expected=first)
            past = await _direct(at_alone, f"$JS.API.DIRECT.GET.{s.SESSIONS}.{log}")
            assert past == b"old", "the server does not show the past any more: is all this needed?"
            async with asyncio.timeout(25):  # one turns to another server
                there = await may_turn.last(s.SESSIONS, log)
                assert there is not None
                assert there.data == b"new"
                assert [r.data async for r in may_turn.read(s.SESSIONS, log)] == [b"old", b"new"]
            with pytest.raises(TimeoutError):  # the other one waits
                async with asyncio.timeout(3):
                    await at_alone.last(s.SESSIONS, log)
            network.heal()
            async with asyncio.timeout(30):
                there = await at_alone.last(s.SESSIONS, log)
                assert there is not None
                assert there.data == b"new"
            for bus in (at_alone, may_turn, writer):
                await bus.close()

    on_machine(network, SERVICES, work)


def test_writes_through_a_leader_that_was_cut_off_land_once_elsewhere(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes them, can agree on them with no one, and forgets them; its client tries elsewhere."""
    monkeypatch.setattr("random.sample", lambda population, _: list(population))

    async def work() -> None:
        with NatsCluster(tmp_path, network.places()) as cluster:
            leader, _ = await _start(cluster)
            others = [node for node in cluster.nodes if node is not leader]
            bus = await connect(leader.url, *(node.url for node in others))
            log = s.session_log("b")
            expected = await bus.append(s.SESSIONS, log, b"0", record_id="0", expected=0)
            for way in both_ways([leader.name], [node.name for node in others]):
                network.drop(*way)
            async with asyncio.timeout(25):
                for number in range(1, 6):
                    expected = await bus.append(
                        s.SESSIONS, log, b"%d" % number, record_id=str(number), expected=expected
                    )
                created = await bus.create(s.SESSIONS, s.mail("b", "prompt", "k"), b"once")
            network.heal()
            stored = [record.data async for record in bus.read(s.SESSIONS, log)]
            assert stored == [b"%d" % number for number in range(6)]
            assert await bus.create(s.SESSIONS, s.mail("b", "prompt", "k"), b"once") == created
            await bus.close()

    on_machine(network, SERVICES, work)


async def _direct(bus: Bus, subject: str) -> bytes:
    """What the library would read, once the server knows that the others are gone."""
    async with asyncio.timeout(40):
        while True:
            with contextlib.suppress(BusUnavailableError, NotFoundError):
                return (await bus.request(subject, b"", timeout_s=1.0)).data


async def _start(cluster: NatsCluster) -> tuple[Node, Node]:
    """Provision it; who leads SESSIONS, and another one."""
    bus = await connect(cluster.url)
    await patiently(lambda: provision(bus))
    await bus.close()
    leader = cluster.leader_of(s.SESSIONS)
    assert leader is not None
    return leader, next(node for node in cluster.nodes if node is not leader)
