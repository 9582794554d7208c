"""`fairlead run` and `fairlead -p`."""

import sys
from pathlib import Path
from typing import Any

import click

from fairlead.options import ON_APPROVAL, OUTPUT_FORMAT, THINKING, TIMEOUT, URL
from fairlead.prompt_text import joined
from fairlead_common.installation.errors import USAGE, CommandError


@click.command()
@click.argument("prompt", nargs=-1)
@click.option("--session", metavar="ID", help="Session to continue or create (default: a new one).")
@click.option("--agent", help="Agent to use (default: main).")
@click.option(
    "--model",
    help="demo, openai/<model>, anthropic/<model>, <provider>/<model> of a configured provider, "
    "or litellm/<provider>/<model>.",
)
@click.option("--thinking", type=click.Choice(THINKING), help="How hard the model thinks in this run.")
@click.option(
    "--max-usd", type=click.FloatRange(min=0, min_open=True), help="Maximum cost of this run, in dollars."
)
@click.option("--max-tokens", type=click.IntRange(min=1), help="Maximum number of tokens in this run.")
@click.option(
    "--max-turns", type=click.IntRange(min=1), help="Maximum number of replies of the model in this run."
)
@click.option(
    "--max-seconds", type=click.FloatRange(min=0, min_open=True), help="Maximum duration of this run."
)
@click.option("--mode", type=click.Choice(["safe", "ask", "allow-all"]), help="Which calls need an approval.")
@click.option(
    "--on-approval",
    type=click.Choice(ON_APPROVAL),
    help="Calls of this run that need an approval: ask a person, or deny them and continue.",
)
@click.option(
    "--sandbox",
    type=click.Choice(["local", "bubblewrap", "docker"]),
    help="Where commands run; not weaker than the agent's.",
)
@click.option(
    "--file",
    "files",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
    multiple=True,
    help="File to send with the prompt. Repeatable.",
)
@OUTPUT_FORMAT
@TIMEOUT
@URL
def run(prompt: tuple[str, ...], url: str | None, output_format: Any, **wishes: Any) -> None:
    """Send a prompt to an agent and print the answer.

    Text from a pipe is added to the prompt. A file that you send is copied to the agent's workspace, and
    the agent is told where. The answer goes to standard output as it is written, tool calls
    to standard error. A restart of the gateway does not interrupt the command.

    On a terminal you are asked for approvals. Without one the run is aborted and ends with status 3;
    with --on-approval deny the model is told that the call was denied, and the run continues.

    \b
    Exit status
      0  completed            5  timed out (--timeout, or the agent's limit)
      1  failed               6  turn limit or budget reached
      2  bad usage            7  unknown: it is not known whether a command took effect
      3  approval needed, denied or expired
      4  aborted              8  truncated: the answer was cut off at the model's output limit
                             69  the server cannot be reached

    \b
    Output formats
      json         one object at the end: {"type": "result", "outcome", "text", "session", "usage", ...}
      stream-json  one event a line, and that object as the last line
    """  # noqa: D301 - click wants the control character
    text = joined(" ".join(prompt))
    if not text.strip() and wishes["files"]:
        text = ", ".join(sorted(file.name for file in wishes["files"]))
    if not text.strip():
        raise CommandError("no prompt: give one as an argument, or pipe it in", USAGE)
    from fairlead.access import open_client
    from fairlead.approval_text import ask_on_terminal
    from fairlead.conversation import Conversation, RunOptions
    from fairlead.session_server import GatewaySessions
    from fairlead_common.errors import InvalidInputError
    from fairlead_common.protocol.ids import check_id

    if wishes["session"]:
        try:
            check_id(wishes["session"], "--session")
        except InvalidInputError as error:
            raise CommandError(str(error), USAGE) from error
    attended = sys.stdin.isatty() and sys.stderr.isatty() and output_format == "text"
    conversation = Conversation(
        GatewaySessions(open_client(url)),
        RunOptions(format=output_format, **wishes),
        ask=ask_on_terminal if attended else None,
        out=sys.stdout,
        err=sys.stderr,
    )
    raise SystemExit(conversation.run(text))
