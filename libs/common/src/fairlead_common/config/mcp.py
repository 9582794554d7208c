"""MCP servers whose tools executors offer."""

from typing import Annotated

import msgspec

from fairlead_common.config.part import ConfigPart, Positive
from fairlead_common.config.secret import Secret

ServerName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_-]{0,30}[A-Za-z0-9])?$")]
Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
HeaderName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]


class McpServer(ConfigPart, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: either a command (stdio), or a URL (streamable HTTP).

    Fields:
        command, args, cwd: a program of the executor's host. It runs there as the executor does, outside
            every sandbox: who may write this may run commands.
        env: its variables, beside PATH, HOME, LANG and the like; secrets by reference.
        url, headers: of a server elsewhere; secrets by reference.
        oauth: the login there, as `fairlead mcp login` stores it.
        roots: folders that a command is told it may work in, where it asks; none: it is told nothing.
        allow, deny: tools by their names at the server, or beginnings with `*`; empty `allow`: all.
        timeout_s: of one call; 0: as for all tools.
        start_timeout_s: within which it has to be connected and list its tools. A command that takes longer
            is told of and left to start; a server behind a URL is tried again.
        hosts: labels of the tool hosts that offer it; empty: all.
        trusted: its word counts: what it calls read-only is not asked about, what it calls idempotent may be
            repeated, what it calls closed brings in nothing of strangers, and changes of its tools are taken
            over.
        accept: fingerprint of the catalogue that a person looked at and takes over. A tool of a server that
            is not trusted is withheld when its description or schema changes; the log says the fingerprint.
        commands: by tool, the argument that a shell of the server runs; its calls are judged as commands.
        idle_s: an executor that only calls its tools parts with it after so long without a call.
    """

    command: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    args: list[str] = []
    env: dict[Variable, str | Secret] = {}
    cwd: Annotated[str, msgspec.Meta(pattern=r"^(/.*)?$")] = ""
    roots: list[Annotated[str, msgspec.Meta(pattern=r"^/", max_length=4096)]] = []
    url: Annotated[str, msgspec.Meta(pattern=r"^(https?://[^\s@#]+)?$")] = ""
    headers: dict[HeaderName, str | Secret] = {}
    oauth: Secret = Secret()
    enabled: bool = True
    allow: list[str] = []
    deny: list[str] = []
    timeout_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    start_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=3_600)] = 30.0
    hosts: list[str] = []
    trusted: bool = False
    accept: str = ""
    commands: dict[str, Annotated[str, msgspec.Meta(min_length=1, max_length=128)]] = {}
    idle_s: Positive = 300.0

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ValueError("an MCP server has either `command` or `url`")
        if self.url and (self.args or self.env or self.cwd or self.roots):
            raise ValueError("`args`, `env`, `cwd` and `roots` belong to `command`, not to `url`")
        if self.command and (self.headers or self.oauth != Secret()):
            raise ValueError("`headers` and `oauth` belong to `url`, not to `command`")
