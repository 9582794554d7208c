"""Options that several commands have."""

from typing import Final

import click

ON_APPROVAL: Final = ("ask", "deny")
THINKING: Final = ("off", "minimal", "low", "medium", "high", "xhigh", "max")

_SAME: Final = {"ls": "list", "list": "ls"}


class Subcommands(click.Group):
    """A group whose `ls` is also called `list`, and the other way round."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, _SAME.get(cmd_name, cmd_name))


URL = click.option("--url", help="Address of the server (default: FAIRLEAD_URL, else this machine).")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
OUTPUT_FORMAT = click.option(
    "--output-format", "output_format", type=click.Choice(["text", "json", "stream-json"]), default="text"
)
TIMEOUT = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Abort the run after this time.",
)
