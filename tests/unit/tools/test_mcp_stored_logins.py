"""Logins at MCP servers that several connections and executors use, at a server that replaces tokens."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import parse_qs

import httpx2
import msgspec
import pytest

from fairlead_common.service.sealing import SealingPair
from fairlead_tools.mcp_servers.logins import LoginFile, McpLogin, StoredTokens
from fairlead_tools.mcp_servers.reporting_transport import ReportingTransport
from fairlead_tools.mcp_servers.stored_login import StoredLogin

URL = "https://vault.example/mcp"
ISSUER = {
    "issuer": "https://login.example/",
    "authorization_endpoint": "https://login.example/authorize",
    "token_endpoint": "https://login.example/token",
    "response_types_supported": ["code"],
}


class EndedError(Exception):
    """A person has to log in again."""


class Vault(httpx2.AsyncBaseTransport):
    """The server and its authorization server, which ends a login whose refresh token is used twice."""

    def __init__(self) -> None:
        self.access, self.refresh, self.count, self.renewals = "a0", "r0", 0, 0
        self.is_ended = False
        self.lasts_s: float | None = 3600
        self.renewal_status = 200
        self.going: asyncio.Event | None = None  # holds back answers to those who ask for it

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        if request.url.host == "vault.example":
            if "slow" in request.url.query.decode() and self.going is not None:
                await self.going.wait()
            good = not self.is_ended and request.headers["Authorization"] == f"Bearer {self.access}"
            return httpx2.Response(200 if good else 401, request=request)
        self.renewals += 1
        if self.renewal_status != 200:
            return httpx2.Response(self.renewal_status, request=request)
        form = parse_qs((await request.aread()).decode())
        if self.is_ended or form["refresh_token"] != [self.refresh]:
            self.is_ended = True
            return httpx2.Response(400, json={"error": "invalid_grant"}, request=request)
        self.count += 1
        self.access, self.refresh = f"a{self.count}", f"r{self.count}"
        tokens = {"access_token": self.access, "refresh_token": self.refresh, "token_type": "Bearer"}
        return httpx2.Response(200, json=tokens | {"expires_in": self.lasts_s}, request=request)


@pytest.fixture
def vault() -> Vault:
    return Vault()


class Executors:
    """Connections of one login from several executors of a host."""

    def __init__(self, folder: Path, vault: Vault, expires_at: float) -> None:
        self._folder = folder
        self._pair = SealingPair(os.urandom(32))
        tokens = {"access_token": "a0", "refresh_token": "r0", "token_type": "Bearer"}
        login = McpLogin(
            url=URL,
            tokens=tokens,
            client={"client_id": "c", "redirect_uris": ["http://127.0.0.1/callback"]},
            issuer=ISSUER,
            expires_at=expires_at,
        )
        self._stored = msgspec.json.encode(login).decode()
        self._transport = ReportingTransport(asks_for_login=True)
        self._transport._inner = vault  # type: ignore[assignment]

    def file(self) -> LoginFile:
        return LoginFile(self._folder, "vault", self._pair, "host:h", "tools.mcp.vault.oauth")

    def connect(self) -> httpx2.AsyncClient:
        login = StoredLogin(StoredTokens(self.file(), self._stored, URL), EndedError("log in again"))
        return httpx2.AsyncClient(transport=self._transport, auth=login)


async def test_executors_that_share_a_login_never_use_a_replaced_refresh_token(
    tmp_path: Path, vault: Vault
) -> None:
    executors = Executors(tmp_path, vault, expires_at=1.0)
    vault.lasts_s = 1  # each token is to be renewed before its first use
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(executors.connect()) for _ in range(3)]
        for _ in range(3):
            for client in clients:
                assert (await client.post(URL)).status_code == 200
    assert vault.renewals == 9


async def test_a_login_is_renewed_once_for_all_who_need_it_at_the_same_time(
    tmp_path: Path, vault: Vault
) -> None:
    executors = Executors(tmp_path, vault, expires_at=1.0)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(executors.connect()) for _ in range(8)]
        answers = await asyncio.gather(*[client.post(URL) for client in clients for _ in range(3)])
    assert {each.status_code for each in answers} == {200}
    assert vault.renewals == 1


@pytest.mark.parametrize("expires_at", [0.0, time.time() + 3600], ids=["unknown", "in an hour"])
async def test_a_token_that_the_server_ends_early_is_renewed(
    tmp_path: Path, vault: Vault, expires_at: float
) -> None:
    vault.access = "another"
    async with Executors(tmp_path, vault, expires_at).connect() as client:
        assert (await client.post(URL, content=b"body")).status_code == 200
    assert vault.renewals == 1


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_login_lives_on_while_its_authorization_server_is_away(
    tmp_path: Path, vault: Vault, status: int
) -> None:
    vault.renewal_status = status
    async with Executors(tmp_path, vault, expires_at=1.0).connect() as client:
        answer = (await client.post(URL)).json()
        assert answer["error"]["code"] == -32097, "no call was started"
        assert answer["error"]["message"].startswith("its login was not renewed: its authorization server")
        vault.renewal_status = 200
        assert (await client.post(URL)).status_code == 200


async def test_a_token_is_used_to_its_end_while_it_cannot_be_renewed(tmp_path: Path, vault: Vault) -> None:
    vault.renewal_status = 503
    async with Executors(tmp_path, vault, expires_at=time.time() - 1).connect() as client:
        assert (await client.post(URL)).status_code == 200  # there are 29 s left


async def test_a_login_that_the_server_refuses_to_renew_has_ended(tmp_path: Path, vault: Vault) -> None:
    vault.is_ended = True
    async with Executors(tmp_path, vault, expires_at=time.time() + 3600).connect() as client:
        with pytest.raises(EndedError):
            await client.post(URL)


async def test_a_request_does_not_wait_for_the_answer_to_another(tmp_path: Path, vault: Vault) -> None:
    vault.going = asyncio.Event()
    async with Executors(tmp_path, vault, expires_at=0.0).connect() as client:
        slow = asyncio.create_task(client.post(f"{URL}?slow=1", timeout=None))
        async with asyncio.timeout(30):
            assert (await client.post(URL)).status_code == 200
            vault.going.set()
            assert (await slow).status_code == 200


async def test_a_renewal_that_was_broken_off_holds_nobody_up(tmp_path: Path, vault: Vault) -> None:
    executors = Executors(tmp_path, vault, expires_at=1.0)

    async def break_off(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadError("broken")

    async with executors.connect() as first, executors.connect() as second:
        own = vault.handle_async_request
        vault.handle_async_request = break_off  # type: ignore[method-assign, assignment]
        assert (await first.post(URL)).json()["error"]["code"] == -32097
        vault.handle_async_request = own  # type: ignore[method-assign]
        async with asyncio.timeout(30):
            assert (await second.post(URL)).status_code == 200


async def test_a_refusal_without_end_is_not_read(tmp_path: Path, vault: Vault) -> None:
    sent = 0

    class WithoutEnd(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal sent
            while sent < 64 << 20:
                sent += 1 << 20
                yield b"x" * (1 << 20)

        async def aclose(self) -> None:
            """Nothing is open."""

    async def refuse(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(401, stream=WithoutEnd(), request=request)

    vault.handle_async_request = refuse  # type: ignore[method-assign]
    async with Executors(tmp_path, vault, expires_at=time.time() + 3600).connect() as client:
        with pytest.raises(EndedError):
            await client.post(URL)
    assert sent <= 1 << 20
