"""`fairlead approve`."""

import json
from typing import Any

import click

from fairlead.errors import USAGE, CommandError


@click.command()
@click.argument("approval", required=False, metavar="[ID]")
@click.option("--deny", "decision", flag_value="deny", help="Do not allow it.")
@click.option(
    "--session", "decision", flag_value="session", help="Allow the like for the rest of the session."
)
@click.option("--always", "decision", flag_value="always", help="Allow the like from now on.")
@click.option("--once", "decision", flag_value="once", default="once", help="Allow this one (the default).")
@click.option("--reason", default="", help="Told to the agent.")
@click.option("--json", "as_json", is_flag=True, help="The list as JSON.")
@click.option("--url", help="Another server (default: FAIRLEAD_URL, else this machine).")
def approve(approval: str | None, decision: str, reason: str, as_json: bool, url: str | None) -> None:
    """List what waits for a decision, or decide it.

    Without ID it lists. An id may be shortened as long as it stays unique.
    """
    from fairlead.access import open_client

    client = open_client(url)
    waiting: list[dict[str, Any]] = client.patiently("GET", "/api/approvals", patience_s=3.0)["approvals"]
    if approval is None:
        _show(waiting, as_json=as_json)
        return
    found = [row["id"] for row in waiting if str(row["id"]).startswith(approval)]
    if len(found) > 1:
        raise CommandError(f"{approval!r} is the beginning of {len(found)} approvals", USAGE)
    from urllib.parse import quote

    body = {"decision": decision, **({"reason": reason} if reason else {})}
    chosen = quote(str(found[0] if found else approval), safe="")
    client.patiently("POST", f"/api/approvals/{chosen}", body, patience_s=3.0)
    click.echo("denied" if decision == "deny" else f"allowed ({decision})", err=True)


def _show(waiting: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(waiting))
        return
    if not waiting:
        click.echo("nothing waits for a decision", err=True)
    from fairlead.conversation import printable

    for row in waiting:
        click.echo(f"{row['id']}  session {row['session']}  {row['tool']} in {row.get('workspace') or '-'}")
        click.echo(f"    {printable(json.dumps(row.get('arguments'), ensure_ascii=False))}")
        click.echo(f"    {row.get('why', '')}")
