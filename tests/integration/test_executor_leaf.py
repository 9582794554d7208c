"""Executors of two hosts behind a leaf node: a NATS server without JetStream that only connects outwards."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlead.commands.executor import executor
from fairlead_common.bus import Bus
from fairlead_common.bus.provisioner import everything
from fairlead_common.bus.settings import BusSettings
from fairlead_common.installation.errors import CommandError
from fairlead_remote.authority import Authority
from fairlead_remote.leaf import write_leaf
from tests.integration.tools_fixture import HOST, Host
from tests.support.nats_server import NatsServer
from tests.support.outcomes import text_of
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(120)


class Middle(NatsServer):
    """The server in the middle: JetStream with a domain, and an encrypted listener for leaf nodes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.leaf_port = free_port()
        authority = Authority(folder)
        authority.ensure()
        authority.issue(folder / "cert.pem", folder / "key.pem", ["127.0.0.1"])
        self.ca = authority.certificate_file
        text = self.config.read_text().replace("jetstream {", "jetstream { domain: fairlead,")
        tls = f'tls {{ cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem" }}'
        self.config.write_text(
            f'{text}\nleafnodes {{ listen: "127.0.0.1:{self.leaf_port}", {tls}\n'
            "  authorization { user: leaf, password: between-us } }\n"
        )


class Leaf(NatsServer):
    """The leaf node, as `fairlead executor leaf` writes it."""

    def __init__(self, folder: Path, middle: Middle) -> None:
        super().__init__(folder)
        self.config = folder / "leaf.conf"
        hub = f"tls://leaf:between-us@127.0.0.1:{middle.leaf_port}"
        write_leaf(folder, [HOST, "other"], hub=hub, ca=middle.ca, listen=f"127.0.0.1:{self.port}")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Host]:
    """A host whose executors know the leaf node alone; its `bus` is in the middle."""
    middle = Middle(tmp_path / "middle")
    middle.start()
    leaf = Leaf(tmp_path / "leaf", middle)
    leaf.start()
    bus = await Bus.connect(BusSettings(url=middle.url), name="test")
    host = Host(tmp_path, bus, leaf)
    host.environ = {"FAIRLEAD_NATS_NKEY": str(leaf.folder / f"{HOST}.nk"), "FAIRLEAD_PROVISION": "no"}
    try:
        await everything(bus, [HOST, "other"])
        yield host
    finally:
        for name, process in host.processes.items():
            if process.poll() is None:
                host.kill(name)
        for pid in host.runners():
            subprocess.run(["kill", "-9", str(pid)], check=False, timeout=10)
        await bus.close()
        leaf.stop()
        middle.stop()


async def test_an_executor_behind_a_leaf_node_does_a_call(site: Host) -> None:
    await site.started()
    call = await site.ask("bash", command="echo from behind the leaf")
    assert "from behind the leaf" in text_of(await site.result(call))


async def test_a_leaf_node_that_is_killed_in_a_command_delays_its_result_and_repeats_nothing(
    site: Host,
) -> None:
    await site.started()
    call = await site.ask("bash", command="echo once >> marks; sleep 2; echo over")
    marks = site.workspace / "marks"
    await until(marks.exists, "the start of the command")
    site.server.kill()
    await until(lambda: "bus_disconnected" in site.log("e1"), "the loss to be noticed")
    site.server.start()
    assert "over" in text_of(await site.result(call, 40.0))
    assert marks.read_text() == "once\n"


async def test_behind_a_leaf_node_the_key_of_one_host_cannot_act_for_another(site: Host) -> None:
    seed = str(site.server.folder / "other.nk")
    other = await Bus.connect(BusSettings(url=site.server.url, nkey_seed_file=seed), name="tools-other")
    try:
        with pytest.raises(Exception, match=HOST):
            await other.request(f"fairlead.tool.{HOST}.c1.claim", b"{}", timeout_s=1.0)
        assert await other.publish("fairlead.tool.other.c1.claim", b"{}") > 0
    finally:
        await other.close()
    said = (site.server.folder / "nats.log").read_text()
    assert f'Publish Violation - Subject "fairlead.tool.{HOST}.c1.claim"' in said


def test_a_leaf_node_that_would_talk_in_the_clear_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="has to be encrypted"):
        write_leaf(tmp_path, ["a"], hub="nats://leaf:x@10.0.0.1:7422", ca=None, listen="127.0.0.1:4222")
    with pytest.raises(CommandError, match="on its own machine"):
        write_leaf(tmp_path, ["a"], hub="nats://leaf:x@127.0.0.1:7422", ca=None, listen="0.0.0.0:4222")
    assert not list(tmp_path.iterdir())


def test_the_password_of_the_middle_may_come_in_a_file(tmp_path: Path) -> None:
    """Everyone on a machine sees its command lines."""
    words = ["leaf", str(tmp_path / "site"), "a", "--hub-file", "-"]
    done = CliRunner().invoke(executor, words, input="tls://leaf:between-us@127.0.0.1:7422\n")
    assert done.exit_code == 0, done.output
    assert "between-us" in (tmp_path / "site" / "leaf.conf").read_text()
    assert "between-us" not in done.output
    assert CliRunner().invoke(executor, words, input="\n").exit_code != 0
