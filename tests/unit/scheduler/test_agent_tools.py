"""The scheduler's tools for agents, as they are offered."""

import json
from typing import cast

from fairlead_common.bus import Bus
from fairlead_scheduler.agent_tools import AgentTools
from fairlead_scheduler.api import Api


def test_each_tool_is_offered_with_a_schema_of_its_arguments() -> None:
    tools = AgentTools(cast(Api, None), cast(Bus, None)).tools()
    assert {"schedule_add", "schedule_list", "wake"} <= {tool.name for tool in tools}
    for tool in tools:
        schema = json.loads(tool.metadata()["fairlead.schema"])
        assert schema["type"] == "object", tool.name
