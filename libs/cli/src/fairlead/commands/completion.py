"""`fairlead completion`."""

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from fairlead_common.installation.errors import USAGE, CommandError


@click.command()
@click.argument("shell", required=False, type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str | None) -> None:
    """Print the completion script of a shell (default: the one in SHELL).

    \b
    bash:  eval "$(fairlead completion bash)"
    zsh:   eval "$(fairlead completion zsh)"
    fish:  fairlead completion fish | source
    """  # noqa: D301 - click wants the control character
    from fairlead.main import fairlead

    name = shell or Path(os.environ.get("SHELL", "bash")).name
    kind = get_completion_class(name)
    if kind is None:
        raise CommandError(f"no completion for {name!r}: name bash, zsh or fish", USAGE)
    click.echo(kind(fairlead, {}, "fairlead", "_FAIRLEAD_COMPLETE").source())
