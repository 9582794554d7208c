"""What an operator says of the tools of an MCP server: which of their arguments a shell runs."""

from fairlead_common.config.mcp import McpServer
from fairlead_tools.mcp_servers.catalogue import Listed, specs_of, updated


def test_a_tool_of_which_the_configuration_says_so_is_a_shell() -> None:
    server = McpServer(command="box", trusted=True, commands={"run": "script"})
    schema = {"type": "object", "properties": {"script": {"type": "string"}}}
    tools = [Listed(name="run", schema=schema), Listed(name="look", schema={"type": "object"})]
    found, problems = specs_of("box", server, updated(None, tools, server))
    assert problems == {}
    assert {name: spec.command_argument for name, spec in found.items()} == {"run": "script", "look": ""}


def test_a_misspelt_argument_or_tool_is_reported_and_not_offered() -> None:
    schema = {"type": "object", "properties": {"cmd": {"type": "string"}}}
    server = McpServer(command="box", trusted=True, commands={"run": "cmnd", "rnu": "cmd"})
    found, problems = specs_of("box", server, updated(None, [Listed(name="run", schema=schema)], server))
    assert found == {}
    assert problems == {
        "run": "command: must be one of the arguments that the schema names (cmd), got 'cmnd'",
        "rnu": "commands: the server has no tool of this name",
    }
