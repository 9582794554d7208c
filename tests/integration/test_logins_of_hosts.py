"""One MCP server behind a login, and executors of two machines that renew their tokens."""

import json
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.integration.foreign_tools_fixture import Program
from tests.support import oauth_server
from tests.support.fairlead_up import FAIRLEAD, FairleadUp
from tests.support.joined_host import JoinedHost
from tests.support.ports import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(240)

LASTS_S = 30  # executors renew a token 30 s before it ends: this one before each request


def log_in(up: FairleadUp, name: str) -> str:
    """As a person does, for each host: open the address, and be sent back. What was said meanwhile."""
    words = [*FAIRLEAD, "mcp", "login", name, "--no-browser"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env=up.environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        for address in program.stdout:
            page = httpx.get(address.strip(), follow_redirects=True, timeout=20)
            assert page.text.startswith("You are logged in")
        said = program.stderr.read()
        assert program.wait(30) == 0, said
    return said


def listed(up: FairleadUp) -> tuple[int, list[str]]:
    """How many tools of the server agents get, and what keeps hosts from it."""
    [row] = json.loads(up.cli("mcp", "ls", "--json").stdout)
    return row["tools"], row["problems"]


def test_each_host_has_a_login_of_its_own_and_renews_it(tmp_path: Path) -> None:
    port, garage = free_port(), JoinedHost(tmp_path / "garage")
    vault = Program(tmp_path / "vault", "vault", oauth_server.SOURCE).start(str(port), str(LASTS_S))
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    try:
        with FairleadUp(tmp_path / "up" / "home", arguments=listen) as up:
            up.wait_printed("registrar_ready", 30)
            garage.join(up.cli("executor", "invite", "garage").stdout)
            added = up.cli("mcp", "add", "vault", "--url", f"http://127.0.0.1:{port}/mcp")
            assert added.returncode == 0, added.stderr
            eventually(lambda: len(up.api("GET", "/api/status")["executors"]) == 2, within_s=60)
            said = log_in(up, "vault")
            assert "login 2 of 2, for the host" in said
            assert "for the host garage" in said
            assert vault.lines().count("login") == 2

            def renewed() -> bool:
                return all(any(each.glob("tools/*/mcp/vault.login")) for each in (up.home, garage.home))

            eventually(renewed, within_s=90)
            eventually(lambda: listed(up) == (1, []), within_s=90)
    finally:
        garage.stop()
        vault.stop()
