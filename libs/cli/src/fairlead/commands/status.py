"""`fairlead status`."""

import json
import time
from typing import Any, Final

import click

from fairlead.options import URL
from fairlead_common.installation.errors import UNREACHABLE, CommandError

_DULL: Final = frozenset({"type", "id", "metadata"})


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@URL
def status(as_json: bool, url: str | None) -> None:
    """Show the services and executors, as NATS reports them.

    Ends with status 69 if NATS does not answer the gateway, for then they are not known.
    """
    from fairlead.access import open_client

    client = open_client(url)
    found: dict[str, Any] = client.request("GET", "/api/status")
    problems = found.get("problems") or []
    if as_json:
        click.echo(json.dumps({"url": client.url, **found}))
    else:
        _print(client.url, found)
    if problems:
        raise CommandError("; ".join(map(str, problems)), UNREACHABLE)


def _print(url: str, found: dict[str, Any]) -> None:
    click.echo(url)
    for part, rows in found.items():
        if part == "problems":
            continue
        if part in _IN_WORDS:
            click.echo(f"{part}: {_IN_WORDS[part](rows)}")
            continue
        if not isinstance(rows, list):
            click.echo(f"{part}: {rows if isinstance(rows, str | int | float | bool) else json.dumps(rows)}")
            continue
        click.echo(f"{part}:")
        for row in rows:
            click.echo(f"  {_executor(row) if part == 'executors' else _row(row)}")
            for warning in (row.get("warnings") or []) if part == "executors" else []:
                click.echo(f"    ! {warning}")


def _backup(state: dict[str, Any]) -> str:
    """When the last scheduled backup and its copy were made, and what is wrong with the next."""
    now_ms = time.time() * 1000
    parts = []
    if made := state.get("made_at_ms"):
        parts.append(f"{_hours(now_ms - made)} ago, {_size(state.get('bytes', 0))}, {state.get('file', '')}")
    else:
        parts.append("none yet")
    if copied := state.get("copied_at_ms"):
        parts.append(f"copied {_hours(now_ms - copied)} ago")
    if problem := state.get("problem"):
        parts.append(f"PROBLEM {_hours(now_ms - state.get('problem_at_ms', 0))} ago: {problem}")
    return "; ".join(parts)


def _streams(sizes: dict[str, int]) -> str:
    """The largest, and the sum."""
    largest = sorted(sizes.items(), key=lambda each: each[1], reverse=True)[:5]
    words = ", ".join(f"{name} {_size(count)}" for name, count in largest)
    return f"{_size(sum(sizes.values()))}: {words}"


def _hours(ms: float) -> str:
    seconds = max(0.0, ms / 1000)
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB" if count >= 1 << 20 else f"{count / 1024:.0f} KiB"


_IN_WORDS: Final = {"backup": _backup, "streams": _streams}


def _executor(row: dict[str, Any]) -> str:
    """Host, pool, what it offers and how busy it is."""
    labels = ",".join(f"{name}={value}" for name, value in sorted((row.get("labels") or {}).items()))
    parts = [
        f"{row.get('host', '-')}/{row.get('executor', '-')}".ljust(28),
        f"pool={row.get('pool', 'default')}",
        f"running={row.get('running', 0)}/{row.get('capacity', 8)}",
        f"sandboxes={','.join(row.get('sandboxes', ['local']))}",
        f"tools={len(row.get('tools', []))}",
        f"labels={labels}" if labels else "",
        "draining" if row.get("draining") else "",
    ]
    return " ".join(part for part in parts if part)


def _row(row: Any) -> str:
    if not isinstance(row, dict):
        return str(row)
    name = row.get("name") or row.get("id") or row.get("host") or "-"
    flat = {**row, **(row.get("metadata") or {})}
    rest = {
        key: value
        for key, value in flat.items()
        if key not in _DULL and value not in (name, None, "", [], {})
    }
    return f"{name:20} {' '.join(f'{key}={_shown(value)}' for key, value in rest.items())}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(
            str(item.get("name", item)) if isinstance(item, dict) else str(item) for item in value
        )
    return value if isinstance(value, str) else json.dumps(value)
