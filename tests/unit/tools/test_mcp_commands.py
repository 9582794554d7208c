"""What an operator says of the tools of an MCP server: which of their arguments a shell runs."""

from fairlead_common.config.mcp import McpServer
from fairlead_tools.mcp_servers.catalogue import Listed, specs_of, updated


def test_a_tool_of_which_the_configuration_says_so_is_a_shell() -> None:
    server = McpServer(command="box", trusted=True, commands={"run": "script"})
    tools = [Listed(name="run", schema={"type": "object"}), Listed(name="look", schema={"type": "object"})]
    found, problems = specs_of("box", server, updated(None, tools, server))
    assert problems == {}
    assert {name: spec.command_argument for name, spec in found.items()} == {"run": "script", "look": ""}
