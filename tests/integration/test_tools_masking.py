"""Secrets that an executor holds, in the results of tools: masked before anything of them is stored."""

import asyncio

import msgspec

from fairlead_common.bus.objects import Objects
from fairlead_common.protocol import subjects as s
from fairlead_common.received import Delivery
from tests.integration.tools_fixture import Host
from tests.support.outcomes import text_of
from tests.support.waiting import until

SECRET = "hook-4f81aa90bc77d2"
TOKEN = "ghp_0123456789abcdefghij"
STARS = "*" * len(SECRET)


async def stored(host: Host) -> bytes:
    """All that was written about the calls, as it is in the streams."""
    found = b""
    for stream in (s.SESSIONS, s.TOOLS, s.EVENTS, s.OUTPUTS):
        async for record in host.bus.read(stream, ">"):
            found += record.data
    return found


async def test_secrets_of_an_executor_are_masked_in_results_outputs_and_what_is_shown_live(
    host: Host,
) -> None:
    shown: list[Delivery] = []
    await host.bus.subscribe(s.event("chat"), shown.append)
    host.environ |= {"FAIRLEAD_SECRET_HOOK": SECRET, "FAIRLEAD_GIT_TOKEN": TOKEN}
    await host.started()
    (host.workspace / "keys").write_text(f"hook={SECRET}\ngit={TOKEN}\n")
    outcome = await host.run("bash", command="cat keys; echo end")
    assert text_of(outcome) == f"hook={STARS}\ngit={'*' * len(TOKEN)}\nend\n"
    read = await host.run("read", path="keys")
    assert SECRET not in text_of(read)
    edited = await host.run("edit", path="keys", edits=[{"old_text": "git=", "new_text": "git2="}])
    assert "git2=" in (host.workspace / "keys").read_text()
    assert TOKEN not in msgspec.json.encode(edited).decode()  # nor in the diff among its details

    half = len(SECRET) // 2
    slowly = f"printf %s {SECRET[:half]}; sleep 1.5; printf '%s\\n' {SECRET[half:]}; sleep 0.5; echo end"
    (host.workspace / "slowly.sh").write_text(slowly)  # on the command line it would be the request's
    first = len(shown)
    outcome = await host.run("bash", command="sh slowly.sh")
    assert text_of(outcome) == f"{STARS}\nend\n"
    await until(lambda: any(b"end" in each.data for each in shown[first:]), "the end is shown")
    pieces = [msgspec.json.decode(each.data) for each in shown[first:]]
    live = "".join(each["text"] for each in pieces if each["type"] == "tool_execution_update")
    assert SECRET[:half] not in live
    assert SECRET[half:] not in live

    long = await host.run("bash", command="for i in $(seq 3000); do cat keys; done")
    assert long.output_object is not None
    whole = await Objects(host.bus).get(long.output_object)
    assert whole.count(STARS.encode()) >= 3000
    everything = await asyncio.wait_for(stored(host), 60)
    for secret in (SECRET, TOKEN):
        assert secret.encode() not in everything
