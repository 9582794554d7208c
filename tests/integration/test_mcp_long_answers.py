"""MCP servers that answer more than is read: their calls end at once and say why, and others go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.foreign_tools_fixture import Program, put, stdio, until_offered
from tests.integration.tools_fixture import Host
from tests.support.outcomes import text_of
from tests.support.ports import free_port
from tests.support.waiting import until

SERVER = """
import asyncio, os, pathlib, sys
from mcp.server.mcpserver import MCPServer

journal = pathlib.Path(os.environ["JOURNAL"])
server = MCPServer("long")

@server.tool(structured_output=False)
def letters(mib: int) -> str:
    return "y" * (mib << 20)

@server.tool()
async def wait() -> str:
    journal.write_text("waiting\\n")
    while not journal.with_name("go").exists():
        await asyncio.sleep(0.01)
    return "waited"

if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]), json_response=sys.argv[2] == "json")
else:
    server.run()
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path / "programs", "long", SERVER)
    yield made
    made.stop()


@pytest.mark.parametrize("transport", ["stdio", "json", "events"])
async def test_an_answer_that_is_too_long_ends_its_own_call_and_no_other(
    host: Host, program: Program, transport: str
) -> None:
    if transport == "stdio":
        put(host, long=stdio(program))
    else:
        port = free_port()
        program.start(str(port), transport)
        put(host, long={"url": f"http://127.0.0.1:{port}/mcp"})
    await host.started()
    await until_offered(host, "mcp__long__wait")
    waiting = await host.ask("mcp__long__wait", timeout_s=240)
    await until(program.lines, "the other call runs")
    outcome = await host.result(await host.ask("mcp__long__letters", mib=33, timeout_s=240))
    assert outcome.status == "unknown"
    assert "Its answer has more than 32 Mi " in text_of(outcome)
    whole = await host.result(await host.ask("mcp__long__letters", mib=17, timeout_s=240))
    assert (whole.status, whole.output_bytes) == ("ok", 17 << 20)
    at_the_limit = await host.result(await host.ask("mcp__long__letters", mib=32, timeout_s=240))
    assert at_the_limit.status in ("ok", "unknown")  # by where the pieces end in which it comes
    program.journal.with_name("go").touch()
    assert text_of(await host.result(waiting)) == "waited"
