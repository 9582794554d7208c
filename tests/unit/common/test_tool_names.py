"""What a model is told that called a tool which there is not."""

import time

from fairlead_common.protocol.tool_names import available_names


def test_few_tools_are_all_named() -> None:
    assert available_names("grep", ["bash", "read"]) == "Available: bash, read."
    assert available_names("grep", []) == "Available: none right now."


def test_of_many_tools_the_five_nearest_are_named_also_without_the_name_of_their_server() -> None:
    names = [f"mcp__server{n}__operation_{n}" for n in range(240)]
    names += ["mcp__github__search_issues", "mcp__github__search_code", "bash", "read", "search"]
    began = time.monotonic()
    told = available_names("search_issue", names)
    assert time.monotonic() - began < 1
    assert told.startswith("There are 245 tools; the nearest names: mcp__github__search_issues, ")
    assert told.count(",") == 4
    assert "search_code" in told
    assert "mcp__server7__operation_7" in available_names("server7 operation", names)
