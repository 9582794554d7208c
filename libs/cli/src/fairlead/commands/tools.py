"""`fairlead tools`: what others would offer to agents."""

from pathlib import Path
from typing import Any

import click

from fairlead.options import JSON, Subcommands


@click.group(cls=Subcommands)
def tools() -> None:
    """Preview tools before agents get them."""


@tools.command()
@click.argument("document", metavar="URL|FILE")
@click.option("--allow", multiple=True, metavar="RULE", help="Operations to offer, such as 'GET /pets/*'.")
@click.option("--deny", multiple=True, metavar="RULE", help="Operations to omit.")
@click.option(
    "--base-url", default="", metavar="URL", help="Where requests go, instead of the server in the document."
)
@click.option(
    "--name", default="api", show_default=True, help="Name of the API, part of the names of its tools."
)
@JSON
def preview(
    document: str, allow: tuple[str, ...], deny: tuple[str, ...], base_url: str, name: str, as_json: bool
) -> None:
    """Show which operations of an OpenAPI document would become tools, and which would not and why.

    Nothing is stored. `fairlead config set tools.openapi.NAME ...` offers them. Exit status 1 if the
    interface would not work like this.
    """
    from fairlead.tool_preview import ask, show

    if not document.startswith(("http://", "https://")):
        document = str(Path(document).absolute())
    interface: dict[str, Any] = {
        "document": document,
        "allow": list(allow),
        "deny": list(deny),
        "base_url": base_url,
    }
    show(ask({"name": name, "interface": interface}, within_s=60.0), as_json=as_json)
