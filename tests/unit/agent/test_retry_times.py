"""How long to wait before a provider is asked again, in all the forms in which they say so."""

import time
from datetime import UTC, datetime
from email.utils import formatdate

import pytest

from fairlead_agent.models.retry_times import retry_after_s, told_wait_s

NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW)


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"Retry-After": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"Retry-After": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "1e300"}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"x-ratelimit-reset": "12"}, 12.0),
        ({"X-RateLimit-Reset": str(int(NOW + 30))}, 30.0),
        ({"X-RateLimit-Reset": str(int((NOW + 30) * 1000))}, 30.0),
        ({"ratelimit-reset": "5"}, 5.0),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}, 360.0),
        ({"x-ratelimit-reset-tokens": "250ms", "x-ratelimit-remaining-tokens": "0"}, 0.25),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "12"}, None),
        ({"x-ratelimit-reset-requests": "1h2m3.5s"}, None),
        (
            {
                "anthropic-ratelimit-input-tokens-reset": rfc3339(NOW + 20),
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-requests-reset": rfc3339(NOW + 50),
                "anthropic-ratelimit-requests-remaining": "9",
            },
            20.0,
        ),
    ],
)
def test_headers(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers) == (None if wait_s is None else pytest.approx(wait_s, abs=0.01))


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("Please try again in 20s. Visit the docs", 20.0),
        ("try again in 1m30.5s.", 90.5),
        ("Please try again in 7m12s", 432.0),
        ("try again in 120ms", 0.12),
        ("Please retry after 26 seconds.", 26.0),
        ("Please wait for 2 minutes and", 120.0),
        ("Please retry in 32.5s.", 32.5),
        ('"retryDelay": "32s"', 32.0),
        ('{"metadata":{"headers":{"X-RateLimit-Reset":"1800000045000"}}}', 45.0),
        ("Please try again later", None),
        ("try again in a moment; 20 seconds passed", None),
    ],
)
def test_words(text: str, wait_s: float | None) -> None:
    assert told_wait_s(text) == (None if wait_s is None else pytest.approx(wait_s))
