"""When a stored record was stored."""

import pytest

from fairlead_common.received import Record


@pytest.mark.parametrize(
    ("stamp", "milliseconds"),
    [
        ("2026-11-27T06:30:00.123456789Z", 1_795_761_000_123),
        ("2026-11-27T06:30:00Z", 1_795_761_000_000),
        ("1970-01-01T00:00:00.5Z", 500),
    ],
)
def test_the_time_stamp_of_the_server_is_read(stamp: str, milliseconds: int) -> None:
    record = Record("a", 1, b"", {"Nats-Time-Stamp": stamp})
    assert record.stored_ms == milliseconds
    assert record.stored_s == pytest.approx(milliseconds / 1000, abs=0.001)


@pytest.mark.parametrize("headers", [{}, {"Nats-Time-Stamp": ""}, {"Nats-Time-Stamp": "yesterday"}])
def test_a_record_without_a_readable_time_stamp_was_stored_at_no_known_time(headers: dict[str, str]) -> None:
    assert Record("a", 1, b"", headers).stored_ms == 0
