"""`fairlead nats`."""

import json
import shlex

import click

from fairlead.errors import UNREACHABLE, CommandError
from fairlead.home import home_from_environment, read_json


@click.command()
@click.option("--env", "as_env", is_flag=True, help='For a shell: eval "$(fairlead nats --env)".')
@click.option("--json", "as_json", is_flag=True, help="As one JSON object, with the password.")
def nats(as_env: bool, as_json: bool) -> None:
    """Show how to reach this home's NATS server."""
    home = home_from_environment()
    context = {key: str(value) for key, value in read_json(home.nats_context).items()}
    if "url" not in context:
        raise CommandError(f"no Fairlead was started in {home.path} yet: `fairlead up` first", UNREACHABLE)
    if as_json:
        click.echo(json.dumps(context))
        return
    if as_env:
        names = {"NATS_URL": "url", "NATS_USER": "user", "NATS_PASSWORD": "password"}
        for variable, key in names.items():
            if context.get(key):
                click.echo(f"export {variable}={shlex.quote(context[key])}")
        return
    click.echo(f"url       {context['url']}")
    if "user" in context:
        click.echo(f"user      {context['user']}")
        click.echo(f"password  in {home.nats_password}")
    click.echo(f"context   {home.nats_context} (copy it to ~/.config/nats/context/fairlead.json)")
    click.echo(
        """
With the `nats` command line:
  eval "$(fairlead nats --env)"
  nats pub fairlead.prompt.main "summarise last night's alerts"    # prompt the session `main`
  nats sub 'fairlead.live.main.>'                                  # watch it think
  nats micro ls                                                    # the services"""
    )
