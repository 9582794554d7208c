"""Moments and durations as people write them. Pure: `now` and zones are passed in."""

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from fairlead_common.cron.requests import LAST_MS
from fairlead_common.errors import InvalidInputError

MAX_SPAN_MS: Final = 316_224_000_000  # ten years of 366 days

_UNITS_MS: Final = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*(?:,\s*|and\s+)?", re.ASCII)
_NUMBER: Final = re.compile(r"\d+\Z", re.ASCII)
_EPOCH_MS_DIGITS: Final = range(12, 15)
_CLOCK: Final = re.compile(r"(\d\d):(\d\d)\Z", re.ASCII)


def zone(name: str, field: str = "tz") -> tzinfo:
    """The time zone of an IANA name.

    Raises:
        InvalidInputError: there is none of this name.
    """
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if not name or len(name) > 64 or name.startswith(("/", ".")):
        raise InvalidInputError(field, f"must be an IANA zone such as Europe/Berlin, got {name[:64]!r}")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidInputError(field, f"no such time zone: {name!r}") from error


def parse_duration(text: str, field: str = "duration") -> int:
    """Milliseconds of `90s`, `10m`, `1h30m`, `1.5 hours`, `2 days`.

    Raises:
        InvalidInputError: it is no duration, is zero, or is longer than ten years.
    """
    words = text.strip().lower()
    total = 0.0
    at = 0
    for piece in _PIECE.finditer(words):
        if piece.start() != at or piece[2] not in _UNITS_MS:
            break
        total += float(piece[1]) * _UNITS_MS[piece[2]]
        at = piece.end()
    if not words or at != len(words):
        hint = " (a unit is missing)" if _NUMBER.match(words) else ""
        raise InvalidInputError(
            field, f"must be a duration such as 90s, 10m, 1h30m or 2d, got {text[:80]!r}{hint}"
        )
    if not 0 < round(total) <= MAX_SPAN_MS:
        raise InvalidInputError(field, f"must be more than 0 and at most 10 years, got {text[:80]!r}")
    return round(total)


def parse_moment(text: str, now_ms: int, tz: tzinfo, field: str = "at") -> int:
    """Milliseconds since 1970 of ISO 8601, milliseconds since 1970, `20m`, `in 2 hours` or `now`.

    Args:
        tz: of an ISO time without a zone. A time that a clock change skips is taken as if it had not changed
            yet; of a time that comes twice the first is meant.

    Raises:
        InvalidInputError: it is none of these.
    """
    words = text.strip()
    lower = words.lower()
    if lower == "now":
        return now_ms
    if _NUMBER.match(words):
        if len(words) not in _EPOCH_MS_DIGITS:
            raise InvalidInputError(
                field, f"a plain number is milliseconds since 1970 (12 to 14 digits), got {len(words)} digits"
            )
        return _checked(int(words), text, field)
    relative = lower.removeprefix("in ").removeprefix("+")
    if relative != lower or _PIECE.match(lower):
        return _checked(now_ms + parse_duration(relative, field), text, field)
    try:
        moment = datetime.fromisoformat(words)
    except ValueError as error:
        raise InvalidInputError(
            field,
            "must be ISO 8601 (2026-03-01T07:00:00+01:00), milliseconds since 1970, or relative "
            f"(20m, in 2 hours), got {text[:80]!r}",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=tz)
    return _checked(milliseconds(moment), text, field)


def _checked(value: int, text: str, field: str) -> int:
    if not 0 <= value <= LAST_MS:
        raise InvalidInputError(field, f"must be between 1970 and 2200, got {text[:80]!r}")
    return value


def milliseconds(moment: datetime) -> int:
    """Milliseconds since 1970 of an aware datetime, exactly."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def moment_of(at_ms: int, tz: tzinfo = UTC) -> datetime:
    """The aware datetime of milliseconds since 1970, exactly."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).astimezone(tz)


def parse_clock(text: str, field: str) -> int:
    """Minutes since midnight of `HH:MM`, `00:00` to `24:00`.

    Raises:
        InvalidInputError: it is not.
    """
    match = _CLOCK.match(text)
    minutes = int(match[1]) * 60 + int(match[2]) if match and int(match[2]) < 60 else -1
    if not 0 <= minutes <= 1440:
        raise InvalidInputError(field, f"must be HH:MM between 00:00 and 24:00, got {text[:20]!r}")
    return minutes


def span_words(span_ms: int) -> str:
    """`1 h 30 min`, `45 s`, `2 days`."""
    parts = []
    for size, name in ((86_400_000, "day"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms")):
        count, span_ms = divmod(span_ms, size)
        if count:
            parts.append(f"{count} {name}{'s' if name == 'day' and count != 1 else ''}")
    return " ".join(parts[:3]) or "0 s"
