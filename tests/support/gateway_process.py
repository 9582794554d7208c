"""A gateway and a nats-server as processes of their own: for what only shows from outside, as memory does."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from fairlead_common.bus import Bus
from fairlead_common.bus.settings import BusSettings
from fairlead_common.bus.streams import provision
from tests.integration.gateway_fixture import TOKEN
from tests.support.nats_server import NatsServer
from tests.support.ports import free_port
from tests.support.waiting import WAIT_S


@dataclass
class GatewayProcess:
    """A gateway that answers on `port`, and a connection to its nats-server."""

    port: int
    process: psutil.Process
    http: httpx.AsyncClient
    bus: Bus

    def memory_mb(self) -> float:
        return round(self.process.memory_full_info().pss / 1e6, 1)

    def cpu_s(self) -> float:
        spent = self.process.cpu_times()
        return float(spent.user + spent.system)

    async def connections(self) -> int:
        """How many are established, those to nats-server among them."""
        found = await asyncio.to_thread(self.process.net_connections, "tcp")
        return sum(each.status == psutil.CONN_ESTABLISHED for each in found)


@asynccontextmanager
async def gateway_process(folder: Path) -> AsyncIterator[GatewayProcess]:
    """Both, with their files in `folder`, until the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server, port = NatsServer(folder / "nats", synced=False).start(), free_port()
    bus = await Bus.connect(BusSettings(url=server.url), name="beside")
    await provision(bus)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FAIRLEAD_")},
        "FAIRLEAD_HOME": str(folder),
        "FAIRLEAD_NATS_URL": server.url,
        "FAIRLEAD_PORT": str(port),
        "FAIRLEAD_TOKEN": TOKEN,
    }
    log = (folder / "gateway.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "fairlead_gateway.main", env=environ, stdout=log, stderr=log
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as http:
        try:
            async with asyncio.timeout(WAIT_S):
                while not await _answers(http):
                    await asyncio.sleep(0.1)
            yield GatewayProcess(port, psutil.Process(process.pid), http, bus)
        finally:
            process.kill()
            await process.wait()
            log.close()
            await bus.close()
            server.stop()


async def _answers(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/api/me")).status_code == 200
    except httpx.HTTPError:
        return False
