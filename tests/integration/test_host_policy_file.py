"""What a host refuses by its own file, on a real bus."""

import asyncio

import msgspec

from fairlead_common.bus.buckets import Bucket
from fairlead_common.protocol import subjects as s
from fairlead_common.protocol.approval_hash import shown_hash
from fairlead_common.protocol.messages import ExecutorInfo, ToolCall
from tests.integration.tools_fixture import HOST, Host
from tests.support.outcomes import text_of


async def sent(host: Host, command: str, *, approved_for: str | None = None) -> ToolCall:
    """A request as an agent would send it; approved, if at all, for a command that need not be the same."""
    call = ToolCall(
        call_id=f"c{len(command)}-{approved_for is not None:d}",
        session="chat",
        name="bash",
        arguments={"command": command},
        workspace="",
        token="t",
    )
    if approved_for is not None:
        shown = msgspec.structs.replace(call, arguments={"command": approved_for})
        call = msgspec.structs.replace(call, approved=shown_hash(shown, HOST))
    await host.bus.create(s.TOOLS, s.tool_request(HOST, call.call_id), msgspec.json.encode(call))
    return call


async def test_i_15_what_is_not_what_a_person_allowed_is_never_started(host: Host) -> None:
    await host.started()
    changed = await host.result(await sent(host, "touch marker2", approved_for="touch marker1"))
    assert (changed.status, changed.is_error) == ("error", True)
    assert "differs from what a person allowed" in text_of(changed)
    unseen = await host.result(await sent(host, "touch marker3; sudo -n true"))
    assert "no person has allowed" in text_of(unseen)
    assert list(host.workspace.glob("marker*")) == []
    command = "touch marker4; sudo -n true"
    seen = await host.result(await sent(host, command, approved_for=command))
    assert seen.status == "ok"
    assert [path.name for path in host.workspace.glob("marker*")] == ["marker4"]


async def test_a_sandbox_that_the_host_policy_refuses_is_not_offered(host: Host) -> None:
    host.home.mkdir(parents=True)
    (host.home / "floor.toml").write_text('sandboxes = ["docker"]\n')
    (host.home / "floor.toml").chmod(0o600)
    await host.started()
    bucket = Bucket(host.bus, s.BUCKET_EXECUTORS)
    async with asyncio.timeout(30):
        while (stored := await bucket.get(f"{HOST}.e1")) is None:
            await asyncio.sleep(0.02)
    # `local` works everywhere; docker is offered where there is an engine with the image.
    assert set(msgspec.json.decode(stored.data, type=ExecutorInfo).sandboxes) <= {"docker"}


async def test_rules_of_the_host_hold_whatever_the_agent_says(host: Host) -> None:
    host.home.mkdir(parents=True)
    (host.home / "floor.toml").write_text('deny = ["bash(touch *)"]\nmax_timeout_s = 600\n')
    (host.home / "floor.toml").chmod(0o600)
    await host.started()
    refused = await host.result(await sent(host, "ls && touch marker", approved_for="ls && touch marker"))
    assert "its rule bash(touch *)" in text_of(refused)
    assert (await host.run("bash", command="ls", timeout_s=5)).status == "ok"
    late = await host.run("bash", command="ls", timeout_s=601.0)
    assert late.is_error
    assert not (host.workspace / "marker").exists()


async def test_secrets_are_shown_to_calls_that_were_allowed_to_and_to_no_others(host: Host) -> None:
    await host.started()
    (host.workspace / ".env").write_text("SECRETKEY=abcd\n")
    (host.workspace / "notes.txt").symlink_to(".env")
    for tool, arguments in (
        ("grep", {"pattern": "SECRET"}),
        ("read", {"path": ".env"}),
        ("read", {"path": "notes.txt"}),
    ):
        assert "abcd" not in text_of(await host.run(tool, **arguments))
    call = ToolCall(
        call_id="c1",
        session="chat",
        name="read",
        arguments={"path": ".env"},
        workspace="",
        token="t",
        secrets_allowed=True,
    )
    await host.bus.create(s.TOOLS, s.tool_request(HOST, call.call_id), msgspec.json.encode(call))
    assert "abcd" in text_of(await host.result(call))
    call = msgspec.structs.replace(call, call_id="c2", secrets_allowed=False)
    call = msgspec.structs.replace(call, approved=shown_hash(call, HOST))
    await host.bus.create(s.TOOLS, s.tool_request(HOST, call.call_id), msgspec.json.encode(call))
    assert "abcd" in text_of(await host.result(call))
