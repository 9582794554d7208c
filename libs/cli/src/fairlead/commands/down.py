"""`fairlead down`."""

import os
import signal
import time
from typing import Final

import click

from fairlead_common.installation.errors import FAILED, CommandError
from fairlead_common.installation.home import home_from_environment
from fairlead_common.installation.processes import UpLock
from fairlead_common.installation.runners import told_of_runners

_PATIENCE_S: Final = 40.0


@click.command()
def down() -> None:
    """Stop the Fairlead of this home cleanly, like Ctrl-C in its terminal. Commands of agents continue."""
    home = home_from_environment()
    lock = UpLock(home) if home.lock.exists() else None
    supervisor = lock.holder() if lock else None
    if lock is None or supervisor is None:
        click.echo(f"Fairlead is not running in {home.path}{told_of_runners(home)}", err=True)
        return
    if supervisor == 0:
        raise CommandError(f"{home.lock} is locked, but does not name the process that holds it", FAILED)
    if service := lock.service():
        raise CommandError(f"the service {service} would restart it: use `fairlead service stop`")
    os.kill(supervisor, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if lock.holder() is None:
            click.echo(f"stopped{told_of_runners(home)}", err=True)
            return
        time.sleep(0.05)
    raise CommandError(f"process {supervisor} did not stop within {_PATIENCE_S:.0f} s", FAILED)
