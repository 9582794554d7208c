"""Entry point: `runner.pyz <mode> <state directory> <workspace> [seconds until idle]`.

Modes: `serve` (detached), `run` (in the foreground), `stdio` (serve, then talk over a pipe).
"""

from __future__ import annotations

import os
import sys

from fairlead_tools.runner import daemon

MODES = ("serve", "run", "stdio")
IDLE_S = 900.0


def main() -> int:
    """Exit status: 0 when a runner listens (`serve`), or has ended (`run`, `stdio`); 1 with a reason."""
    # No argparse: it is a quarter of the start, and nobody but a launcher types this.
    try:
        mode, state, workspace = sys.argv[1:4]
        idle_s = float(sys.argv[4]) if len(sys.argv) > 4 else IDLE_S
        if mode not in MODES:
            raise ValueError(mode)
    except ValueError:
        sys.stderr.write(f"usage: runner {'|'.join(MODES)} STATE WORKSPACE [IDLE_S]\n")
        return 2
    build = os.path.basename(sys.argv[0])
    try:
        daemon.serve(os.path.abspath(state), os.path.abspath(workspace), idle_s, build, detach=mode != "run")
    except daemon.StartError as error:
        sys.stderr.write(f"runner: {error}\n")
        return 1
    if mode == "stdio":
        daemon.bridge(os.path.abspath(state))
    return 0


if __name__ == "__main__":
    sys.exit(main())
