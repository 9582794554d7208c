"""The verdicts on the other clients of a chaos run: silent about what is right, right about the rest."""

import asyncio
from typing import Any

from tests.chaos.api import Answer
from tests.chaos.clients.listing import list_problems
from tests.chaos.evidence import Evidence
from tests.chaos.oracle import judge
from tests.unit.support.test_oracle import clean, entry, message

SECOND = 1_000_000_000
FIRST = {"event": "send", "session": "r", "generation": 1, "key": "k-R1", "name": "R1", "racing": False}
SECOND_LIFE = {"event": "send", "session": "r", "generation": 2, "key": "k-R2", "name": "R2", "racing": False}


def life(seq: int, key: str) -> list[dict[str, Any]]:
    run = f"r{seq}"
    return [
        entry(seq, "run_start", run_id=run),
        message(seq + 1, "user", seqs=[seq - 1], keys=[key]),
        entry(seq + 2, "run_end", run_id=run, outcome="completed", seqs=[seq - 1], keys=[key]),
    ]


def recycled(entries: list[dict[str, Any]], *, alive: bool = True, status: int = 404) -> Evidence:
    """A session with one prompt, deleted, made again and prompted again."""
    evidence = clean()
    evidence.recycled = [
        {"event": "make", "session": "r", "generation": 1, "status": 201, "t": SECOND},
        {**FIRST, "t": 2 * SECOND},
        {**FIRST, "event": "said", "status": 202, "accepted": True, "t": 3 * SECOND},
        {"event": "deleted", "session": "r", "generation": 1, "status": 204, "t": 5 * SECOND},
        {"event": "make", "session": "r", "generation": 2, "status": 201, "t": 6 * SECOND},
        {**SECOND_LIFE, "t": 7 * SECOND},
        {**SECOND_LIFE, "event": "said", "status": 202, "accepted": True, "t": 8 * SECOND},
    ]
    if not alive:
        last = {"event": "deleted", "session": "r", "generation": 2, "status": 204, "t": 9 * SECOND}
        evidence.recycled.append(last)
    shown = {"alive": alive, "status": 200 if alive else status, "log_status": status, "entries": entries}
    evidence.recycled_world = {"r": shown}
    evidence.others = {"r": entries} if alive else {}
    return evidence


def found(evidence: Evidence) -> list[str]:
    return sorted(violation.kind for violation in judge(evidence))


def test_session_that_was_deleted_and_made_again_is_clean() -> None:
    assert found(recycled(life(10, "k-R2"))) == []


def test_prompt_of_the_new_generation_that_is_gone_is_lost() -> None:
    assert found(recycled([])) == ["LOST"]


def test_prompt_of_the_new_generation_that_is_said_twice_is_found() -> None:
    assert found(recycled([*life(10, "k-R2"), *life(20, "k-R2")])) == ["DUP"]


def test_prompt_of_a_deleted_generation_that_is_in_the_log_again_is_found() -> None:
    assert found(recycled([*life(10, "k-R1"), *life(20, "k-R2")])) == ["REVIVED"]


def test_command_that_runs_after_the_deletion_was_confirmed_is_found() -> None:
    evidence = recycled(life(10, "k-R2"))
    evidence.ledger.append(("R1.S1", 78, 6 * SECOND))
    assert found(evidence) == ["REVIVED"]


def test_command_before_the_deletion_was_confirmed_is_allowed() -> None:
    evidence = recycled(life(10, "k-R2"))
    evidence.ledger.append(("R1.S1", 78, 4 * SECOND))
    assert found(evidence) == []


def test_prompt_that_raced_the_deletion_may_be_on_either_side() -> None:
    evidence = recycled([*life(10, "k-R1"), *life(20, "k-R2")])
    for record in evidence.recycled:
        if record.get("name") == "R1":
            record["racing"] = True
    assert found(evidence) == []


def test_deleted_session_is_nowhere() -> None:
    assert found(recycled([], alive=False)) == []
    assert found(recycled([], alive=False, status=200)) == ["REVIVED", "REVIVED"]


def test_session_that_cannot_be_made_or_deleted_is_stuck() -> None:
    evidence = recycled(life(10, "k-R2"))
    evidence.recycled[0]["status"] = 503
    evidence.recycled[3]["status"] = 202
    assert found(evidence) == ["STUCK", "STUCK"]


def sdk(text: str, *, ops: int = 1) -> Evidence:
    evidence = clean()
    about = {"name": "O1", "session": "", "stream": True}
    evidence.sdk = [{"event": "send", **about}, {"event": "answer", "text": text, **about}]
    evidence.ledger += [("O1.S1", 80 + number, 13 * SECOND) for number in range(ops)]
    return evidence


def test_answer_that_was_told_once_is_clean_and_twice_is_found() -> None:
    assert found(sdk("done O1 ")) == []
    assert found(sdk("done O1 done O1 ")) == ["REPEATED"]
    assert found(sdk("")) == ["LOST"]


def test_command_of_an_sdk_call_runs_once() -> None:
    assert found(sdk("done O1 ", ops=2)) == ["DUP"]
    assert found(sdk("done O1 ", ops=0)) == ["LOST"]


def test_call_that_ended_in_an_error_may_have_run_once() -> None:
    evidence = sdk("", ops=1)
    evidence.sdk[1] = {**evidence.sdk[0], "event": "error", "error": "timeout"}
    assert found(evidence) == []


def test_mail_of_a_plain_publisher_may_be_stored_twice_and_counts_once() -> None:
    evidence = clean()
    for record in evidence.client:
        if record.get("key") == "p1":
            record["plain"] = True
    evidence.client.append({**evidence.client[1], "seq": 20})
    again = entry(21, "dropped", seqs=[20], keys=["p1"], reason="said before")
    evidence.entries["s"].append(again)
    evidence.followed["s"].insert(-3, {"event": "entry", "seq": 21})
    assert found(evidence) == []
    evidence.entries["s"][-1] = message(21, "user", seqs=[20], keys=["p1"])
    assert "DUP" in found(evidence)


class Listed:
    """An API whose list stays as it is."""

    def __init__(self, *sessions: dict[str, Any]) -> None:
        self.sessions = list(sessions)

    async def log(self, _: str) -> list[dict[str, Any]]:
        return [{"seq": 7}]

    async def request(self, *_: object) -> Answer:
        return Answer(200, {"sessions": self.sessions, "next": None})


def problems(*sessions: dict[str, Any]) -> list[str]:
    return asyncio.run(list_problems(Listed(*sessions), {"a"}, {"b"}, within_s=0))  # type: ignore[arg-type]


def test_list_is_compared_with_the_logs() -> None:
    idle = {"id": "a", "status": "idle", "last_seq": 7}
    assert problems(idle) == []
    assert problems() == ["a is in no list"]
    assert problems(idle, {"id": "b", "status": "idle", "last_seq": 3}) == ["b was deleted and is listed"]
    assert problems({**idle, "status": "running"}) == ["a is listed as running"]
    assert problems({**idle, "last_seq": 5}) == ["a is listed as of entry 5, its log ends at 7"]
