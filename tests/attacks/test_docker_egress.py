"""Containers with `network: egress`: only the proxy, and through it only the list (SB-04, SB-05)."""

import http.server
import ipaddress
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.attacks.docker_box import DockerBox
from tests.support import containers
from tests.support.containers import api
from tests.support.waiting import eventually

pytestmark = [pytest.mark.docker, pytest.mark.skipif(bool(containers.missing()), reason=containers.missing())]

FETCH = """
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
except Exception as error:
    print("refused:", error)
"""
CONNECT = """
import socket, sys
target = sys.argv[1]
with socket.create_connection(("127.0.0.1", 3128), 10) as sock:
    sock.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode("latin-1"))
    print(sock.recv(300).decode().splitlines()[0])
"""


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"page of the host")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[tuple[str, int]]:
    """A server of this machine as containers on the engine's network see it."""
    subnet = ipaddress.ip_network(api().inspect_network("bridge")["IPAM"]["Config"][0]["Subnet"])
    address = str(subnet.network_address + 1)
    with http.server.ThreadingHTTPServer((address, 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield address, server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[DockerBox]:
    made = DockerBox(tmp_path, network="egress")
    yield made
    made.close()


async def test_only_what_is_on_the_list_is_reached_and_only_through_the_proxy(
    box: DockerBox, page: tuple[str, int]
) -> None:
    address, port = page
    url = f"http://{address}:{port}/"
    said = await box.script("fetch.py", FETCH, url)
    assert "refused: HTTP Error 403" in said
    box.settings = msgspec.structs.replace(box.settings, egress_allow=[f"{address}:{port}", "localhost:80"])
    await box.sandbox._keep_egress()
    assert await box.bash(f"python3 fetch.py {url}") == "page of the host\n"
    direct = (
        f"python3 -c \"import socket; socket.create_connection(('{address}', {port}), 3)\" 2>&1 | tail -1"
    )
    assert "Network is unreachable" in await box.bash(direct)
    assert "403" in await box.bash("python3 fetch.py http://localhost/")  # by name, it leads inwards
    assert "403" in await box.bash(f"python3 fetch.py http://{address}:{port + 1}/")
    (box.work / "connect.py").write_text(CONNECT)
    assert " 200 " in await box.bash(f"python3 connect.py {address}:{port}")
    for target in (
        "1.1.1.1:443",
        "169.254.169.254:80",
        f"evil.{address}:{port}",
        f"{address}:{port}@evil.org:443",
    ):
        assert " 40" in await box.bash(f"python3 connect.py {target}")
    assert "Name or service" in await box.bash("getent hosts example.org || echo Name or service")
    assert await box.bash("cat /proc/net/dev | wc -l") == "3\n"


async def test_list_is_out_of_reach_and_requests_are_noted(box: DockerBox, page: tuple[str, int]) -> None:
    address, port = page
    await box.script("fetch.py", FETCH, f"http://{address}:{port}/secret-path")
    said = await box.bash(
        "ls /fairlead /fairlead/egress; touch /fairlead/egress/x; rm -f /fairlead/egress/sock"
    )
    assert "list" not in said
    assert said.count("Read-only file system") == 2
    [proxy] = [each for each in containers.containers(box.identity) if "fairlead.egress" in each["Labels"]]
    noted = f'"host": "{address}", "port": {port}, "refused"'
    eventually(lambda: noted in api().logs(proxy["Id"]).decode(), "the request is noted")
    assert "secret-path" not in api().logs(proxy["Id"]).decode()


async def test_proxy_is_as_hard_as_the_sandboxes_and_comes_back_when_killed(
    box: DockerBox, page: tuple[str, int]
) -> None:
    address, port = page
    box.settings = msgspec.structs.replace(box.settings, egress_allow=[f"{address}:{port}"])
    fetch = f"python3 fetch.py http://{address}:{port}/"
    assert await box.script("fetch.py", FETCH, f"http://{address}:{port}/") == "page of the host\n"
    [proxy] = [each for each in containers.containers(box.identity) if "fairlead.egress" in each["Labels"]]
    host = api().inspect_container(proxy["Id"])["HostConfig"]
    assert (host["CapDrop"], host["CapAdd"], host["ReadonlyRootfs"]) == (["ALL"], None, True)
    assert host["SecurityOpt"] == ["no-new-privileges"]
    api().kill(proxy["Id"])
    assert "502" in await box.bash(fetch)
    await box.sandbox._keep_egress()
    assert await box.bash(fetch) == "page of the host\n"
    box.settings = msgspec.structs.replace(box.settings, network="none")
    await box.sandbox._keep_egress()
    assert not [each for each in containers.containers(box.identity) if "fairlead.egress" in each["Labels"]]
    with socket.create_connection((address, port), timeout=5):
        pass
