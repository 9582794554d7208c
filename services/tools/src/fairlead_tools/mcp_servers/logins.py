"""Logins at MCP servers by OAuth: tokens as they were stored, and as executors of a host renewed them.

A login is stored like any credential, sealed to the host. Servers replace tokens when these are renewed, and
executors may not write credentials: what replaced them is kept in a file of the host, sealed to its own key.

    mcp/<server>.login      the tokens that are good now, and which stored login they come from
"""

import hashlib
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead_common.errors import InvalidInputError
from fairlead_common.protocol.credentials import SealedCredential
from fairlead_common.service.sealing import SealingPair, published, seal
from fairlead_common.undecodable import UNDECODABLE
from fairlead_tools.executor_tools.secret import HELD

SPARE_S: Final = 30.0  # a token that ends so soon is renewed before it is used


class McpLogin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A login at one server. What is JSON here is as OAuth defines it.

    Fields:
        url: of the server; the login is good for no other.
        tokens: the answer of the token endpoint. client: the registered client.
        issuer: metadata of the authorization server, as far as they are needed again.
        resource: metadata of the server as a protected resource; empty: it has none.
        expires_at: of the access token, in seconds since 1970; 0: it is not known.
    """

    url: str
    tokens: dict[str, Any]
    client: dict[str, Any]
    issuer: dict[str, Any] = {}
    resource: dict[str, Any] = {}
    expires_at: float = 0.0

    def renewed(self, tokens: dict[str, Any]) -> "McpLogin":
        """The same with other tokens, which were given out just now."""
        lasts_s = tokens.get("expires_in")
        until = time.time() + float(lasts_s) - SPARE_S if isinstance(lasts_s, int | float) else 0.0
        return msgspec.structs.replace(self, tokens=tokens, expires_at=max(until, 1.0) if until else 0.0)


class _Kept(msgspec.Struct, frozen=True):
    """The content of the file. `of`: hash of the stored login that was renewed."""

    of: str
    sealed: SealedCredential


class LoginFile:
    """The login of one server on this host.

    Args:
        where: of the setting, for errors.
    """

    def __init__(self, folder: Path, server: str, pair: SealingPair, recipient: str, where: str) -> None:
        self._path = folder / f"{server}.login"
        self._name = f"login.{server}"
        self._pair = pair
        self._recipient = recipient
        self._where = where

    def current(self, stored: str, url: str) -> McpLogin:
        """The login with the tokens that are good now.

        Args:
            stored: the value of the stored credential.

        Raises:
            InvalidInputError: it is no login, or one at another server.
        """
        login = self._decoded(self._kept(stored) or stored)
        if login.url != url:
            raise InvalidInputError(self._where, f"the login is for {login.url[:200]}, not for {url}")
        _hold(login)
        return login

    def keep(self, stored: str, login: McpLogin) -> None:
        """Keep what replaced the tokens of a stored login, before the old ones are forgotten."""
        _hold(login)
        value = msgspec.json.encode(login).decode()
        keys = published([self._pair.public])
        sealed = SealedCredential(
            name=self._name,
            recipient=self._recipient,
            sealed=seal(self._name, self._recipient, value, keys),
            set_at_ms=time.time_ns() // 1_000_000,
        )
        temporary = self._path.with_suffix(".login-new")
        temporary.touch(mode=0o600)
        temporary.write_bytes(msgspec.json.encode(_Kept(_hash(stored), sealed)))
        temporary.rename(self._path)

    def _kept(self, stored: str) -> str | None:
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except (OSError, *UNDECODABLE):
            return None
        return self._pair.open(kept.sealed) if kept.of == _hash(stored) else None

    def _decoded(self, value: str) -> McpLogin:
        try:
            return msgspec.json.decode(value, type=McpLogin)
        except UNDECODABLE:
            raise InvalidInputError(
                self._where, "the stored credential is no login; `fairlead mcp login` stores one"
            ) from None


def _hold(login: McpLogin) -> None:
    """Keep the tokens out of results."""
    for token in ("access_token", "refresh_token"):
        HELD.add(str(login.tokens.get(token) or ""))


def _hash(stored: str) -> str:
    return hashlib.sha256(stored.encode()).hexdigest()
