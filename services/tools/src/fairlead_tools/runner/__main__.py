"""Entry point: `runner.pyz <mode> <state directory> <workspace> [idle_s] [uid:gid] [restriction]`.

Modes: `serve` (detached), `run` (in the foreground), `stdio` (serve, then talk over a pipe), `attach`
(talk over a pipe to a running one). With `uid:gid` a runner that is root has its tools run as that
user. The restriction of commands is JSON (see `confinement/restrict.py`).
"""

from __future__ import annotations

import os
import sys

from fairlead_tools.runner import daemon, forward
from fairlead_tools.runner.confinement import user

MODES = ("serve", "run", "stdio", "attach")
IDLE_S = 900.0


def main() -> int:
    """Exit status: 0 when a runner listens (`serve`), or has ended (`run`, `stdio`); 1 with a reason."""
    # No argparse: it is a quarter of the start, and only launchers call this.
    try:
        mode, state, workspace = sys.argv[1:4]
        idle_s = float(sys.argv[4]) if len(sys.argv) > 4 else IDLE_S
        tools_user = user.parse(sys.argv[5] if len(sys.argv) > 5 else "")
        restriction = sys.argv[6] if len(sys.argv) > 6 else ""
        if mode not in MODES:
            raise ValueError(mode)
    except ValueError:
        sys.stderr.write(
            f"usage: runner {'|'.join(MODES)} STATE WORKSPACE [IDLE_S] [UID:GID] [RESTRICTION]\n"
        )
        return 2
    build = os.path.basename(sys.argv[0])
    try:
        if mode != "attach":
            folders = (os.path.abspath(state), os.path.abspath(workspace))
            detach = mode != "run"
            if not detach and forward.VARIABLE in os.environ:
                forward.start(os.environ[forward.VARIABLE])
            daemon.serve(*folders, idle_s, build, detach=detach, user=tools_user, restriction=restriction)
        if mode in ("stdio", "attach"):
            daemon.bridge(os.path.abspath(state))
    except (daemon.StartError, OSError) as error:
        sys.stderr.write(f"runner: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
