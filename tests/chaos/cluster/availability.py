"""How long writes were not taken although a majority of nodes was up and connected."""

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.chaos.cluster.network import NAMES, SERVICES
from tests.chaos.evidence import read_lines

LIMIT_S: Final = 15.0

Interval = tuple[float, float]


class Gaps(NamedTuple):
    """The longest waits for an acknowledgement, in seconds, by stream.

    Fields:
        connected: while some two nodes were up, reached each other, and one of them the services. An election
            takes 4 to 9 s, and a fault in the middle of it makes it begin again.
        steady: while it was the same two all the time.
    """

    connected: dict[str, float]
    steady: dict[str, float]

    @property
    def longest(self) -> float:
        return max(self.connected.values(), default=0.0)

    @property
    def longest_steady(self) -> float:
        return max(self.steady.values(), default=0.0)


def pairs_of(state: dict[str, Any]) -> set[tuple[str, str]]:
    """The pairs of nodes that could agree and be told."""
    cut = {tuple(way) for way in state["cut"]}
    nodes = [name for name in NAMES if name != SERVICES and name not in state["down"]]

    def linked(one: str, other: str) -> bool:
        return (one, other) not in cut and (other, one) not in cut

    return {
        (one, other)
        for one, other in combinations(nodes, 2)
        if linked(one, other) and (linked(one, SERVICES) or linked(other, SERVICES))
    }


def gaps(folder: Path) -> Gaps:
    """What the journals of a run show."""
    states = [(record["t"] / 1e9, pairs_of(record)) for record in read_lines(folder / "cluster.jsonl")]
    probes = read_lines(folder / "probe.jsonl")
    end = max([record["t"] / 1e9 for record in probes] + [at for at, _ in states], default=0.0)
    spans = [(at, until, pairs) for (at, pairs), (until, _) in pairwise([*states, (end, set())])]
    connected = _joined([(at, until) for at, until, pairs in spans if pairs])
    every_pair = {pair for _, pairs in states for pair in pairs}
    steady = [
        interval
        for pair in every_pair
        for interval in _joined([(at, until) for at, until, pairs in spans if pair in pairs])
    ]
    streams = {record["stream"] for record in probes}
    taken = {
        stream: [r["t"] / 1e9 for r in probes if r["stream"] == stream and r["event"] == "ok"]
        for stream in streams
    }
    waits = {stream: list(pairwise([*moments, end])) for stream, moments in taken.items() if moments}
    return Gaps(
        {stream: _longest(each, connected) for stream, each in waits.items()},
        {stream: _longest(each, steady) for stream, each in waits.items()},
    )


def _joined(spans: list[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for at, until in spans:
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], until)
        else:
            found.append((at, until))
    return found


def _longest(waits: list[Interval], intervals: list[Interval]) -> float:
    """The longest time that lies in both a wait and an interval."""
    return max((min(b, until) - max(a, at) for a, b in waits for at, until in intervals), default=0.0)
