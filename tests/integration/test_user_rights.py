"""What a connection makes of a real server that changes its mind about this user, or lacks what is needed."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from fairlead_common.bus import Bus, connection, reply_inbox, settings
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import is_there
from fairlead_common.errors import BusUnavailableError, ForbiddenError
from fairlead_common.protocol import subjects as s
from fairlead_common.service.process import register
from tests.support.nats_server import NatsServer
from tests.support.waiting import until


class Server(NatsServer):
    """It knows one user, `alice`, and may be told otherwise."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._head = self.config.read_text()
        self.write()

    def write(self, user: str = "alice", rights: str = '{ publish: ">", subscribe: ">" }') -> None:
        users = f"{{ user: {user}, password: secret, permissions: {rights} }}"
        self.config.write_text(f"{self._head}authorization {{ users: [ {users} ] }}\n")

    def reload(self, **changed: str) -> None:
        self.write(**changed)
        self.signal(signal.SIGHUP)

    def said(self, text: str) -> bool:
        return text in (self.folder / "nats.log").read_text()

    def settings(self) -> BusSettings:
        return BusSettings(url=self.url, user="alice", password="secret")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "nats")
    yield made
    made.stop()


async def round_trip_fails(bus: Bus) -> bool:
    try:
        await bus.round_trip()
    except (ForbiddenError, BusUnavailableError):
        return True
    return False


async def test_refusal_before_the_first_connection_does_not_count_against_a_later_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.write(user="bob")
    server.start()
    connecting = asyncio.create_task(Bus.connect(server.settings(), name="test"))
    await until(lambda: server.said("authentication error"))
    server.reload()
    bus = await asyncio.wait_for(connecting, 20)
    try:
        monkeypatch.setattr(connection, "REFUSED_PATIENCE_S", 0.0)
        assert bus.client.options["reconnect_time_wait"] == settings.RECONNECT_PAUSE_S
        bus._on_refused(PermissionError("Authorization Violation"))
        assert not bus.closed.is_set()
        bus._on_refused(PermissionError("Authorization Violation"))
        assert bus.closed.is_set()  # it stays so
    finally:
        await bus.close()


async def test_right_to_hear_answers_that_comes_back_is_used_again_without_a_new_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_inbox, "DEAF_PAUSE_S", 0.1)
    server.start()
    bus = await Bus.connect(server.settings(), name="test")
    try:
        await bus.round_trip()
        server.reload(rights='{ publish: ">", subscribe: "other" }')
        async with asyncio.timeout(20):
            while not bus.answers._deaf:
                await asyncio.sleep(0.01)
                await round_trip_fails(bus)
        number = bus.client.client_id
        assert await round_trip_fails(bus)
        server.reload()
        async with asyncio.timeout(20):
            while await round_trip_fails(bus):
                await asyncio.sleep(0.01)
        await bus.round_trip()
        assert bus.client.client_id == number
    finally:
        await bus.close()


async def test_server_without_jetstream_is_named_as_such(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    server.config.write_text(f'listen: "127.0.0.1:{server.port}"\n')
    server.start()
    try:
        bus = await Bus.connect(BusSettings(url=server.url), name="test")
        with pytest.raises(BusUnavailableError, match="JetStream is not enabled on this NATS server"):
            await is_there(bus, s.SESSIONS)
        await bus.close()
    finally:
        server.stop()


async def test_a_connection_that_is_closed_on_purpose_is_not_called_lost(server: Server) -> None:
    server.start()
    bus = await Bus.connect(server.settings(), name="test")
    with capture_logs() as logs:
        await bus.close()
    assert [each for each in logs if each["event"] == "bus_disconnected"] == []
    bus = await Bus.connect(server.settings(), name="test")
    with capture_logs() as logs:
        server.kill()
        await until(lambda: any(each["event"] == "bus_disconnected" for each in logs))
    await bus.close()


async def test_a_service_tells_the_revision_of_its_image(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start()
    bus = await Bus.connect(server.settings(), name="test")
    try:
        for given, told in (("abc123", "abc123"), ("unknown", None), ("", None)):
            monkeypatch.setenv("FAIRLEAD_REVISION", given)
            micro = await register(bus, "agent", {})
            assert micro.info().metadata.get("revision") == told
            await micro.stop()
    finally:
        await bus.close()
