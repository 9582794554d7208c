"""The proxy before NATS loses what it is told to lose, and nothing else."""

from pathlib import Path

import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from fairlead_common.errors import BusUnavailableError
from tests.chaos.proxy import ProxyProcess, frames, is_acknowledgement
from tests.support.nats_server import NatsServer


def test_frames_are_taken_whole() -> None:
    body = b'{"stream":"SESSIONS","a":1}'
    ack = b"MSG _INBOX.1 7 %d\r\n%s\r\n" % (len(body), body)
    buffer = bytearray(b"PING\r\n" + ack + b"HMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\nMSG a 1 5\r\nab")
    found = frames(buffer)
    assert [frame[:4] for frame in found] == [b"PING", b"MSG ", b"HMSG"]
    assert bytes(buffer) == b"MSG a 1 5\r\nab"
    assert [is_acknowledgement(frame) for frame in found] == [False, True, False]


async def test_lost_acknowledgement_leaves_the_message_stored(nats_server: NatsServer) -> None:
    with ProxyProcess(nats_server.port) as proxy:
        bus = await Bus.connect(BusSettings(url=proxy.url), name="test")
        await provision(bus)
        subject = "fairlead.session.s1.in.prompt.k1"
        proxy.tell("drop 0.7")
        with pytest.raises(BusUnavailableError):
            await bus.request(subject, b"hello", timeout_s=0.3)
        assert proxy.tell("status")["dropped"] == 1
        stored = await bus.last("SESSIONS", subject)
        assert stored is not None
        assert stored.data == b"hello"
        await bus.close()


async def test_cut_connection_is_made_anew(nats_server: NatsServer, tmp_path: Path) -> None:
    with ProxyProcess(nats_server.port) as proxy:
        bus = await Bus.connect(BusSettings(url=proxy.url), name="test")
        await provision(bus)
        assert proxy.tell("cut")["cut"] == 1
        seq = await bus.create("SESSIONS", "fairlead.session.s1.in.prompt.k1", b"hello")
        assert seq > 0
        proxy.tell("delay 0.5 50")
        assert await bus.last("SESSIONS", "fairlead.session.s1.in.prompt.k1") is not None
        assert proxy.tell("status")["delayed"] >= 2
        await bus.close()
