"""An agent reaches the jobs of the user that its session belongs to, and no others."""

from typing import Any, cast

import msgspec
import pytest

from fairlead_common.cron.requests import AddJob, Jobs, OneJob, Wake
from fairlead_common.errors import NotFoundError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.notices import CreateSession
from fairlead_scheduler.agent_tools import AgentTools
from fairlead_scheduler.api import Api
from fairlead_scheduler.tool_service import Asker
from tests.support.fake_bus import FakeBus

JOBS: dict[str, dict[str, object]] = {
    "of-ann": {"id": "of-ann", "createdBy": {"owner": "ann"}},
    "of-bob": {"id": "of-bob", "createdBy": {"owner": "bob"}},
    "of-admin": {"id": "of-admin"},
}


class _Api:
    """What the tools ask of the scheduler."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []

    async def list(self, _: object) -> Jobs:
        return Jobs(jobs=list(JOBS.values()), total=3)

    async def get(self, asked: Any) -> OneJob:
        return OneJob(job=JOBS[asked.id])

    def __getattr__(self, method: str) -> Any:
        async def note(asked: object, *_: object, **__: object) -> OneJob:
            self.done.append((method, asked))
            return OneJob(job={})

        return note


async def asker(bus: FakeBus, session: str, owner: str) -> Asker:
    created = msgspec.json.encode(CreateSession(owner=owner))
    await bus.publish(subjects.mail(session, "notice", "create"), created)

    def progress(_: str) -> None:
        return

    return Asker(session, f"call-{session}", "main", False, progress)  # type: ignore[arg-type, call-arg, unused-ignore]


async def run(api: _Api, bus: FakeBus, who: Asker, tool_name: str, /, **arguments: object) -> Any:
    tool = next(each for each in AgentTools(cast(Api, api), bus).tools() if each.name == tool_name)
    return await tool.run(msgspec.convert(arguments, tool.arguments), who)


async def test_an_agent_reaches_the_jobs_of_its_user_alone(bus: FakeBus) -> None:
    api, bob, admin = _Api(), await asker(bus, "bobs", "bob"), await asker(bus, "main", "")
    assert [job["id"] for job in (await run(api, bus, bob, "schedule_list"))["jobs"]] == ["of-bob"]
    assert len((await run(api, bus, admin, "schedule_list"))["jobs"]) == 3
    for job in ("of-ann", "of-admin"):
        for name, more in (
            ("schedule_runs", {}),
            ("schedule_update", {"enabled": False}),
            ("schedule_remove", {}),
            ("schedule_run", {}),
        ):
            with pytest.raises(NotFoundError):
                await run(api, bus, bob, name, id=job, **more)
    assert api.done == []
    await run(api, bus, bob, "schedule_remove", id="of-bob")
    await run(api, bus, admin, "schedule_remove", id="of-ann")
    assert [method for method, _ in api.done] == ["remove", "remove"]


async def test_the_run_of_a_users_job_writes_to_no_session_of_the_admin(bus: FakeBus) -> None:
    api, of_bob, of_admin = _Api(), await asker(bus, "cron-b", "bob"), await asker(bus, "cron-a", "")
    for who in (of_bob, of_admin):
        await run(api, bus, who, "wake", text="x")
        await run(api, bus, who, "schedule_add", name="n", every="1h", reminder="r")
    found = [asked.session if isinstance(asked, Wake) else asked.job["session"] for _, asked in api.done]
    assert found == ["cron-b", "cron-b", "main", "main"]
    assert all(isinstance(asked, Wake | AddJob) for _, asked in api.done)
