"""Instruments count what they are told, and no more combinations of labels than they may."""

import msgspec
import pytest

from fairlead_common.service import instruments
from fairlead_common.service.instruments import (
    INSTRUMENTS,
    MAX_SERIES,
    CounterInstrument,
    GaugeInstrument,
    HistogramInstrument,
    ReportedInstrument,
    Series,
    reported,
)


@pytest.fixture(autouse=True)
def _own_instruments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "INSTRUMENTS", {})


def test_a_counter_counts_by_label() -> None:
    counter = CounterInstrument("c_total", "text", "kind")
    counter.add("a")
    counter.add("a", by=2.5)
    counter.add("b")
    assert counter.series() == [Series(labels=["a"], value=3.5), Series(labels=["b"], value=1)]


def test_a_histogram_counts_each_value_in_one_bucket() -> None:
    histogram = HistogramInstrument("h", "text", bounds=(1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 99.0):
        histogram.observe(value)
    assert histogram.series() == [Series(value=102.0, counts=[2, 1, 1])]


def test_a_gauge_is_read_when_it_is_asked_for() -> None:
    gauge = GaugeInstrument("g", "text")
    assert gauge.series() == []
    values = [1.0, 2.0]
    gauge.follow(lambda: values.pop(0))
    assert [gauge.series()[0].value for _ in range(2)] == [1.0, 2.0]


def test_too_many_labels_are_counted_as_one() -> None:
    counter = CounterInstrument("c_total", "text", "kind")
    for number in range(MAX_SERIES + 50):
        counter.add(f"k{number}")
    counter.add("k0")
    counter.add("x" * 500)
    found = {series.labels[0]: series.value for series in counter.series()}
    assert len(found) == MAX_SERIES + 1
    assert (found["k0"], found["other"]) == (2, 51)


def test_labels_that_were_not_declared_are_refused() -> None:
    counter = CounterInstrument("c_total", "text", "kind")
    with pytest.raises(ValueError, match="takes the labels"):
        counter.add("a", "b")
    with pytest.raises(ValueError, match="two instruments"):
        CounterInstrument("c_total", "text")


def test_a_report_survives_the_wire_and_tells_of_the_process() -> None:
    CounterInstrument("c_total", "text").add()
    CounterInstrument("unused_total", "text")
    found = msgspec.json.decode(msgspec.json.encode(reported()), type=list[ReportedInstrument])
    values = {each.name: each.series[0].value for each in found}
    assert values["c_total"] == 1
    assert values["fairlead_process_memory_bytes"] > 1_000_000
    assert values["fairlead_process_cpu_seconds_total"] > 0
    assert "unused_total" not in values
    assert "c_total" not in INSTRUMENTS
