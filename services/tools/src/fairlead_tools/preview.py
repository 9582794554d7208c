"""What an MCP server or an HTTP interface would offer here: a program for the command line.

    python -m fairlead_tools.preview < question > answer

The question is a `PreviewQuestion`, the answer a `PreviewAnswer`, both as JSON. Nothing is stored or
offered. It runs with the rights, the secrets and the environment of whoever starts it, on their machine.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from fairlead_common.config import McpServer, OpenApi
from fairlead_common.errors import InvalidInputError
from fairlead_common.installation.home import home_from_environment
from fairlead_common.installation.nats_access import access_of, connection
from fairlead_common.protocol.credentials import HOST
from fairlead_common.protocol.ids import host_label
from fairlead_common.protocol.messages import ToolSpec
from fairlead_common.service.logs import configure_logs
from fairlead_common.service.sealing import SealingPair
from fairlead_common.service.stored_credentials import StoredCredentials
from fairlead_tools.executor_tools.secret import HELD, hold_stored, stored_names
from fairlead_tools.mcp_servers.catalogue import specs_of, updated
from fairlead_tools.mcp_servers.environment import inherited, resolved
from fairlead_tools.mcp_servers.logins import LoginFile
from fairlead_tools.mcp_servers.problems import reason_of
from fairlead_tools.mcp_servers.server import login_of
from fairlead_tools.openapi.documents import base_url, load
from fairlead_tools.openapi.operations import operations
from fairlead_tools.openapi.schemas import DocumentError

BYTES_PER_TOKEN: Final = 4  # about, of JSON
STDERR_BYTES: Final = 4096
ALL: Final = 100_000  # operations, so that a preview shows how many there are

_AGENT: Final = "Fairlead (preview of an interface)"


class PreviewQuestion(msgspec.Struct, frozen=True):
    """What to look at: an MCP `server`, or an `interface`, under the name that its tools will have.

    Fields:
        prompt: of the server, whose text is wanted instead. arguments: what it is filled in with.
    """

    name: str
    server: McpServer | None = None
    interface: OpenApi | None = None
    prompt: str = ""
    arguments: dict[str, str] = {}


class PreviewedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as models would see it.

    Fields:
        own: its name at the server, or the method and path of its operation.
        tokens: about, of its name, description and schema, which go with every request to a model.
    """

    name: str
    own: str
    tokens: int
    read_only: bool
    description: str


class PreviewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Fields:
        state: `ok`, or `problem`: nothing could be listed.
        text: of the problem, or of the prompt.
        prompts: of a server, for people.
        left_out: tools or operations that are not offered, and why.
        stderr: what a command wrote last to its standard error.
    """

    state: Literal["ok", "problem"]
    text: str = ""
    tools: list[PreviewedTool] = []
    left_out: dict[str, str] = {}
    prompts: list[dict[str, Any]] = []
    stderr: str = ""


async def preview(question: PreviewQuestion) -> PreviewAnswer:
    """The answer; what cannot be reached or read is an answer, too."""
    try:
        if question.server is not None:
            login = await _logins(question.name, question.server)
            return await _of_server(question, question.server, login)
        if question.interface is not None:
            return await _of_interface(question.name, question.interface)
    except (DocumentError, InvalidInputError) as error:
        return PreviewAnswer(state="problem", text=str(error))
    return PreviewAnswer(state="problem", text="nothing to look at")


async def _logins(name: str, server: McpServer) -> LoginFile | None:
    """Open the stored credentials that the server is given, as the executors of this machine do.

    None if it is given none.
    """
    names = stored_names(server)
    if not names:
        return None
    home = home_from_environment()
    host = host_label({})
    key = home.path / "keys" / f"host-{host}.key"
    if not key.exists():
        raise InvalidInputError("stored", "no executor has run here, so no stored credential can be opened")
    pair = SealingPair.of_file(key)
    async with connection(access_of(home)) as bus:
        stored = StoredCredentials(bus, f"{HOST}{host}", pair, names=lambda: names)
        await stored.load()
        hold_stored(stored)
    folder = home.path / "tools" / host / "mcp"
    return LoginFile(folder, name, pair, f"{HOST}{host}", f"tools.mcp.{name}.oauth")


async def _of_server(question: PreviewQuestion, server: McpServer, file: LoginFile | None) -> PreviewAnswer:
    from fairlead_tools.mcp_servers import prompts, sdk  # a second and 60 MB

    name = question.name
    env = inherited() | resolved(server.env, f"tools.mcp.{name}.env")
    headers = resolved(server.headers, f"tools.mcp.{name}.headers")
    login = None if file is None else login_of(sdk, name, server, file)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stderr"
        try:
            async with (
                asyncio.timeout(server.start_timeout_s),
                sdk.open_session(server, env, headers, log, login) as session,
            ):
                if question.prompt:
                    text = await prompts.text_of_prompt(session.client, question.prompt, question.arguments)
                    return PreviewAnswer(state="ok", text=text)
                listed = await session.tools()
                offered = msgspec.to_builtins(await prompts.prompts_of(session.client))
                odd = dict(session.odd)
        except Exception as error:  # noqa: BLE001 - whatever a server does is what is asked for
            why = reason_of(error, server.start_timeout_s)
            return PreviewAnswer(state="problem", text=HELD.text(why), stderr=_last(log))
        stderr = _last(log)
    catalogue = updated(None, listed, server, odd)
    specs, left_out = specs_of(name, server, catalogue)
    unwanted = {tool.name for tool in listed} - specs.keys() - left_out.keys()
    left_out |= dict.fromkeys(sorted(unwanted), "not chosen by allow and deny")
    tools = [_shown(own, spec) for own, spec in specs.items()]
    return PreviewAnswer(state="ok", tools=tools, left_out=left_out, prompts=offered, stderr=stderr)


async def _of_interface(name: str, interface: OpenApi) -> PreviewAnswer:
    document = await load(interface, _AGENT)
    left_out: dict[str, str] = {}
    found = operations(name, msgspec.structs.replace(interface, max_tools=ALL), document, left_out)
    everything = msgspec.structs.replace(interface, allow=[], deny=[], max_tools=ALL)
    known = {f"{each.method} {each.path}" for each in operations(name, everything, document, {})}
    chosen = {f"{each.method} {each.path}" for each in found}
    left_out |= dict.fromkeys(sorted(known - chosen - left_out.keys()), "not chosen by allow and deny")
    text = ""
    if len(found) > interface.max_tools:
        text = f"{len(found)} operations, at most {interface.max_tools} (max_tools): choose with allow"
    try:
        base_url(interface, document)
    except DocumentError as error:
        text = text or str(error)
    if not found:
        text = text or "no operation would be a tool"
    tools = [_shown(f"{each.method} {each.path}", each.spec) for each in found]
    return PreviewAnswer(state="problem" if text else "ok", text=text, tools=tools, left_out=left_out)


def _shown(own: str, spec: ToolSpec) -> PreviewedTool:
    sent = msgspec.json.encode([spec.name, spec.description, spec.parameters])
    return PreviewedTool(
        name=spec.name,
        own=own,
        tokens=-(-len(sent) // BYTES_PER_TOKEN),
        read_only=spec.read_only,
        description=spec.description.partition("\n")[0][:200],
    )


def _last(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - STDERR_BYTES))
            return HELD.text(file.read(STDERR_BYTES).decode("utf-8", "replace"))
    except OSError:
        return ""


def main() -> None:
    """Answer the question on standard input."""
    configure_logs("preview", level="error")
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=PreviewQuestion)
    answer = asyncio.run(preview(question))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
