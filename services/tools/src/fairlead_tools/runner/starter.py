"""A process that has loaded the runner, and forks one for each order: most of a runner's start is loading it.

It belongs to one executor and ends with it; the runners that it forked do not. It may be killed at any time:
the executor then starts runners itself.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from typing import NoReturn

from fairlead_tools.runner import daemon, linux, plan
from fairlead_tools.runner.protocol import RUNNER_STARTED

MAX_ORDER_BYTES = 64 * 1024


def serve(handoff: int, archive: str) -> None:
    """Fork a runner for each order until the executor closes its end.

    An order is JSON, `[state, workspace, idle_s]`, and comes with a pipe for the answer: `RUNNER_STARTED`
    once a runner listens, else the reason why none does.

    Args:
        handoff: descriptor of a socket that keeps messages apart.
        archive: path of the runner's file.
    """
    for number in (signal.SIGINT, signal.SIGCHLD):  # nothing waits for the children: they report themselves
        signal.signal(number, signal.SIG_IGN)
    plan.load_file_tools()
    "".encode("ascii")  # a codec is a module, too
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=handoff) as sock:
        while True:
            order, pipes, _, _ = socket.recv_fds(sock, MAX_ORDER_BYTES, 1)
            if not order:
                return
            for pipe in pipes:  # recv_fds ignores its flags
                os.set_inheritable(pipe, False)
            if pipes and os.fork() == 0:
                sock.close()
                _start(order, pipes[0], archive)
            for pipe in pipes:
                os.close(pipe)


def _start(order: bytes, report: int, archive: str) -> NoReturn:
    """Become a runner's launcher: what `runner serve` is when it is executed."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        state, workspace, idle_s = json.loads(order)
        linux.show_command([sys.executable, "-I", "-S", archive, "serve", state, workspace, str(idle_s)])
        daemon.serve(state, workspace, float(idle_s), os.path.basename(archive), detach=True, report=report)
        os.write(report, RUNNER_STARTED)
    except (daemon.StartError, OSError, ValueError) as error:
        os.write(report, str(error).encode("utf-8", "replace"))
    finally:
        os._exit(0)
