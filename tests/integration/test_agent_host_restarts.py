"""An agent that starts while the executors of its sessions do."""

import pytest

from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.entries import RunStartEntry
from tests.support.agent_world import HOST, World, agent_service
from tests.support.nats_server import NatsServer

DEMO: dict[str, object] = {"models.default": "demo", "models.demo_delay_s": 0}


async def test_the_model_is_told_of_the_tools_of_a_host_that_restarts_as_the_agent_did(
    w: World, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All services are made again at an update: the executor is heard a moment after the agent has begun."""
    async with agent_service(nats_server, monkeypatch, settings=DEMO):
        await w.say("a", "run: echo first")
        await w.run_end("a")
    assert [call.name for call in w.calls] == ["bash"]
    await Bucket(w.bus, s.BUCKET_EXECUTORS).delete(f"{HOST}.e1")
    async with agent_service(nats_server, monkeypatch, "agent-2", settings=DEMO):
        await w.say("a", "run: echo second")
        await w.wait_for("a", lambda log: sum(isinstance(each, RunStartEntry) for each in log) == 2)
        await w.heartbeat()
        end = await w.run_end("a", 2)
    assert end.outcome == "completed"
    assert [call.name for call in w.calls] == ["bash", "bash"]
