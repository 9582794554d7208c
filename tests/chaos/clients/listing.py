"""The list of sessions against their logs, once nothing is under way any more."""

import asyncio
import time

from tests.chaos.api import Api, Json

WITHIN_S = 15.0


async def list_problems(api: Api, alive: set[str], gone: set[str], within_s: float = WITHIN_S) -> list[str]:
    """What the list shows wrongly, as sentences; it has `within_s` seconds to become right.

    Args:
        alive: ids of sessions that were not deleted.
        gone: ids that were deleted.
    """
    deadline = time.monotonic() + within_s
    while True:
        logs = {session: await api.log(session) for session in alive}
        ends = {session: log[-1]["seq"] for session, log in logs.items() if log}
        found = _compared(await _whole_list(api), ends, gone)
        if not found or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.3)


async def _whole_list(api: Api) -> dict[str, Json]:
    shown: dict[str, Json] = {}
    before = ""
    while True:
        answer = await api.request("GET", f"/api/sessions?limit=1000{before}")
        if not answer.accepted:
            raise AssertionError(f"the list of sessions: {answer}")
        shown |= {session["id"]: session for session in answer.body["sessions"]}
        if not answer.body["next"]:
            return shown
        before = f"&before={answer.body['next']}"


def _compared(shown: dict[str, Json], logs: dict[str, int], gone: set[str]) -> list[str]:
    found = [f"{session} is in no list" for session in sorted(logs.keys() - shown.keys())]
    found += [f"{session} was deleted and is listed" for session in sorted(gone & shown.keys())]
    for session, last_seq in logs.items():
        summary = shown.get(session)
        if summary is None:
            continue
        if summary["status"] != "idle":
            found.append(f"{session} is listed as {summary['status']}")
        if summary["last_seq"] != last_seq:
            found.append(f"{session} is listed as of entry {summary['last_seq']}, its log ends at {last_seq}")
    return found
