"""`fairlead wake` and `fairlead heartbeat`."""

import json

import click

from fairlead_common.installation.errors import FAILED, CommandError

_URL = click.option("--url", help="Another server (default: FAIRLEAD_URL, else this machine).")
_JSON = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.command()
@click.option("--text", required=True, help="What the agent finds in its next turn.")
@click.option(
    "--mode",
    type=click.Choice(["now", "next-heartbeat"]),
    default="next-heartbeat",
    show_default=True,
    help="Whether a heartbeat follows at once.",
)
@click.option("--session", default="main", show_default=True, help="Which session.")
@_JSON
@_URL
def wake(text: str, mode: str, session: str, as_json: bool, url: str | None) -> None:
    """Leave a line for a session, and with `--mode now` have it looked at at once."""
    _fire(url, "/api/wake", {"text": text, "mode": mode, "session": session}, as_json=as_json)


@click.command()
@click.option("--agent", default="main", show_default=True, help="Whose heartbeat.")
@click.option("--if-due", is_flag=True, help="Only if there is something to do.")
@_JSON
@_URL
def heartbeat(agent: str, if_due: bool, as_json: bool, url: str | None) -> None:
    """Have an agent look after its things now."""
    _fire(url, "/api/heartbeat", {"agent": agent, "force": not if_due}, as_json=as_json)


def _fire(url: str | None, path: str, body: dict[str, object], *, as_json: bool) -> None:
    from fairlead.access import open_client
    from fairlead_common.protocol.ids import new_id

    key = new_id()
    answer = open_client(url).patiently("POST", path, {**body, "key": key}, key=key, patience_s=3.0)
    if as_json:
        click.echo(json.dumps(answer))
    if not answer["fired"]:
        raise CommandError(f"not done: {answer.get('reason')}", FAILED)
    if not as_json:
        click.echo("stored", err=True)
        for text in answer.get("warnings", []):
            click.echo(f"note: {text}", err=True)
