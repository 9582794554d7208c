"""What the records of the other clients prove: deleted is gone, asked once is done once and told once."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.chaos.evidence import Evidence, Record, Violation, ended, of_role, of_type

SLACK_NS = 20_000_000


@dataclass
class Generation:
    """One life of an id. `accepted` keys by name; `deleted` when that was confirmed, 0 while it lives."""

    number: int
    accepted: dict[str, str] = field(default_factory=dict)
    racing: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    deleted: int = 0
    ambiguous: bool = False


def recycled(evidence: Evidence) -> Iterator[Violation]:
    """Sessions that were deleted and made again."""
    lives: dict[str, dict[int, Generation]] = defaultdict(dict)
    for record in evidence.recycled:
        life = lives[record["session"]].setdefault(record["generation"], Generation(record["generation"]))
        if record["event"] == "send":
            life.names.add(record["name"])
            if record["racing"]:
                life.racing.add(record["name"])
        elif record["event"] == "said" and record["accepted"] and not record["racing"]:
            life.accepted[record["name"]] = record["key"]
        elif record["event"] == "make" and record["status"] not in (201, 409):
            yield Violation("STUCK", record["session"], f"could not be made: status {record['status']}")
        elif record["event"] == "deleted":
            if record["status"] not in (204, 404):
                yield Violation(
                    "STUCK", record["session"], f"could not be deleted: status {record['status']}"
                )
            life.deleted = record["t"]
    for session, generations in lives.items():
        shown = evidence.recycled_world.get(session, {})
        yield from _revived(session, generations, evidence)
        if shown.get("alive"):
            yield from _last_life(session, list(generations.values()), shown["entries"], evidence)
        elif shown:
            yield from _gone(session, shown)


def _revived(session: str, lives: dict[int, Generation], evidence: Evidence) -> Iterator[Violation]:
    for life in lives.values():
        if not life.deleted:
            continue
        for op, _, t in evidence.ledger:
            name = op.partition(".")[0]
            if name in life.names - life.racing and t > life.deleted + SLACK_NS:
                yield Violation("REVIVED", session, f"op {op} ran after generation {life.number} was deleted")


def _last_life(
    session: str, lives: list[Generation], entries: list[Record], evidence: Evidence
) -> Iterator[Violation]:
    last, earlier = lives[-1], lives[:-1]
    said = Counter(key for e in of_role(entries, "user") for key in e["message"].get("keys", []))
    ends = Counter(key for e in entries if ended(e) for key in e.get("keys", []))
    for name, key in last.accepted.items():
        if said[key] != 1 or ends[key] != 1:
            how = f"is {said[key]} times in the log and ended {ends[key]} times"
            yield Violation("LOST" if not said[key] else "DUP", session, f"prompt {name} {how}")
    racing = {f"k-{name}" for life in lives for name in life.racing}
    for key in said.keys() - set(last.accepted.values()):
        old = any(key == f"k-{name}" for life in earlier for name in life.names)
        if old and key not in racing:
            yield Violation("REVIVED", session, f"{key} was deleted and is in the log again")
    if any(entry["run_id"] not in _ended_runs(entries) for entry in of_type(entries, "run_start")):
        yield Violation("STUCK", session, "a run has no end")


def _ended_runs(entries: list[Record]) -> set[str]:
    return {entry["run_id"] for entry in of_type(entries, "run_end")}


def _gone(session: str, shown: Record) -> Iterator[Violation]:
    for what in ("status", "log_status"):
        if shown[what] != 404:
            yield Violation("REVIVED", session, f"was deleted, and {what} is {shown[what]}")


def sdk(evidence: Evidence) -> Iterator[Violation]:
    """Calls of the `openai` package. That an op ran twice is seen in the ledger."""
    ran = Counter(op.partition(".")[0] for op, _, _ in evidence.ledger)
    unknown_allowed = any(f["landed"] and f["target"] in ("runner", "everything") for f in evidence.faults)
    for record in evidence.sdk:
        if record["event"] != "answer":
            continue
        name, text = record["name"], record["text"]
        told = text.split().count(name)
        if told > 1:
            yield Violation("REPEATED", record["session"], f"{name} was answered with {text[:120]!r}")
        elif told == 0:
            yield Violation("LOST", record["session"], f"{name} was answered with {text[:120]!r}")
        if not ran[name] and not unknown_allowed:
            yield Violation("LOST", record["session"], f"{name} was answered, and its op never ran")
