"""`fairlead restore`."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairlead_common.installation.errors import UNREACHABLE, USAGE, CommandError
from fairlead_common.installation.home import Home, home_from_environment

if TYPE_CHECKING:
    from fairlead_node.backup.archive import Backup
    from fairlead_node.backup.locations import RestoreTarget
    from fairlead_node.backup.progress import Progress
    from fairlead_node.backup.reconcile import Reconciled

_SHOWN = 20


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--nats",
    "nats_url",
    metavar="URL",
    help="Restore into this NATS server (default: FAIRLEAD_NATS_URL, else the home).",
)
@click.option("--replicas", type=click.IntRange(1, 5), help="Copies of each stream in a cluster (default 1).")
@click.option("--force", is_flag=True, help="Restore even if data is stored there already.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, without progress.")
def restore(file: Path, nats_url: str | None, replicas: int | None, force: bool, as_json: bool) -> None:
    """Restore a backup, into a home that is stopped or into a NATS server that is not in use.

    Tool calls that had not been started when the backup was made may have run since: they get the outcome
    `unknown` and are not started automatically. Pending approvals are pending again. Working sessions
    continue. Jobs fire missed slots according to their misfire policy; slots that fired between the backup
    and the loss are unknown, and may fire again.

    An interrupted restore loses nothing in a home; run it again.
    """
    from fairlead_node.backup.archive import open_backup
    from fairlead_node.backup.locations import target
    from fairlead_node.backup.progress import Progress

    home = home_from_environment()
    copies = replicas or _replicas()
    progress = Progress(quiet=as_json)
    began = time.monotonic()
    try:
        with open_backup(file) as backup:
            for _ in backup.check():
                pass
            progress.say(f"{file}: {backup.manifest.made_by}, as of {backup.manifest.began_at}")
            with target(home, nats_url, backup, force=force) as place:
                settled = asyncio.run(_restore(backup, place, progress, copies, force=force))
    finally:
        progress.end()
    took_s = time.monotonic() - began
    if as_json:
        click.echo(json.dumps(_row(backup, place, settled, took_s)))
    else:
        _tell(home, backup, place, settled, took_s)


def _replicas() -> int:
    text = os.environ.get("FAIRLEAD_NATS_REPLICAS") or "1"
    if not text.isdecimal() or not 1 <= int(text) <= 5:
        raise CommandError(f"FAIRLEAD_NATS_REPLICAS must be a number from 1 to 5, got {text!r}", USAGE)
    return int(text)


async def _restore(
    backup: "Backup", place: "RestoreTarget", progress: "Progress", replicas: int, *, force: bool
) -> "Reconciled":
    from fairlead_common.errors import FairleadError
    from fairlead_common.installation.nats_access import connection
    from fairlead_node.backup.restore import restore_streams

    try:
        async with connection(place.access) as bus:
            return await restore_streams(bus, backup, progress.tell, replicas=replicas, force=force)
    except FairleadError as error:
        raise CommandError(f"not restored: {error}. Run it again", UNREACHABLE) from error


def _row(backup: "Backup", place: "RestoreTarget", settled: "Reconciled", took_s: float) -> dict[str, object]:
    return {
        "id": backup.manifest.id,
        "began_at": backup.manifest.began_at,
        "into": place.described,
        "kept": str(place.kept) if place.kept else None,
        "took_s": round(took_s, 3),
        "messages": backup.manifest.messages,
        "sessions": settled.sessions,
        "unknown": [{"session": row[0], "call": row[1], "tool": row[2]} for row in settled.unknown],
        "withdrawn": settled.withdrawn,
        "waiting": settled.waiting,
        "going_on": settled.going_on,
        "unreadable": settled.unreadable,
    }


def _tell(home: Home, backup: "Backup", place: "RestoreTarget", settled: "Reconciled", took_s: float) -> None:
    manifest = backup.manifest
    click.echo(
        f"restored into {place.described} in {took_s:.1f} s: {settled.sessions} sessions, "
        f"{manifest.messages} messages, as of {manifest.began_at}"
    )
    if place.kept:
        click.echo(f"the previous data is in {place.kept}")
    if settled.going_on:
        click.echo(f"{len(settled.going_on)} sessions continue by themselves once the services run")
    if settled.waiting:
        click.echo(f"{settled.waiting} approvals are still pending: `fairlead approve` lists them")
    if settled.unknown:
        click.echo(f"{len(settled.unknown)} tool calls may have run since; their outcome is unknown now:")
        for session, call, tool in settled.unknown[:_SHOWN]:
            click.echo(f"  session {session}  {tool}  {call}")
        if len(settled.unknown) > _SHOWN:
            click.echo(f"  and {len(settled.unknown) - _SHOWN} more (--json lists all)")
    if settled.unreadable:
        click.echo(
            f"{len(settled.unreadable)} sessions have an entry that cannot be read: "
            + ", ".join(settled.unreadable[:_SHOWN])
        )
    click.echo(
        "Workspaces were not part of the backup. Reload pages that are open in a browser."
        + (f" Start with `FAIRLEAD_HOME={home.path} fairlead up`." if place.empty else "")
    )
