"""Times in words such as `30d`."""

import click

_LONGEST_S = 3_153_600_000.0  # a hundred years
_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration_s(text: str, option: str) -> float:
    """The same in seconds.

    Raises:
        BadParameter: of `option`, if it is no such time.
    """
    unit = _UNITS.get(text[-1:])
    try:
        seconds = float(text[:-1]) * unit if unit else 0.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _LONGEST_S:
        text = f"must be a number with m, h, d or w, such as 30d, and at most 100 years, got {text!r}"
        raise click.BadParameter(text, param_hint=option)
    return seconds
