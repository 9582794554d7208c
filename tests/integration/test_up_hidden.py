"""What a command of an agent with sandbox `local`, a program of the same user, can learn from /proc."""

import contextlib
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.fairlead_up import FairleadUp
from tests.support.hidden import ORDINARY, what_its_user_sees

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux hides processes from their own user"),
    pytest.mark.skipif(bool(ORDINARY) and not shutil.which("setpriv"), reason="no setpriv is installed"),
]

KEY = "sk-very-secret-key"


def test_commands_of_the_same_user_cannot_read_the_keys_of_services(tmp_path: Path) -> None:
    twin = subprocess.Popen([*ORDINARY, "sleep", "60"], env={"OPENAI_API_KEY": KEY, "PATH": "/usr/bin:/bin"})
    try:
        deadline = time.monotonic() + 20  # until it is the program, with an environment of its own
        while not what_its_user_sees(twin.pid, "environ") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert KEY.encode() in what_its_user_sees(twin.pid, "environ")
    finally:
        twin.kill()
        twin.wait()
    environ = {"OPENAI_API_KEY": KEY, "FAIRLEAD_MODEL": "demo"}
    sets = ("agents.main.mode=allow-all",)
    with FairleadUp(tmp_path / "home", environ=environ, sets=sets, under=ORDINARY) as up:
        assert up.process
        for name, pid in {**up.pids(), "supervisor": up.process.pid}.items():
            if name == "nats":  # no program of Fairlead's, and without secrets in its environment
                continue
            for what in ("environ", f"task/{pid}/environ", "maps"):
                assert what_its_user_sees(pid, what) == b"", (name, what)
        agent = up.pids()["agent"]
        script = f"cat /proc/{agent}/environ /proc/{agent}/task/*/environ || echo refused"
        (up.workspace / "look.sh").write_text(script)  # a path that is spelled out would be asked about
        ended = up.ask("run: sh look.sh")
        assert "refused" in ended["text"]
        assert KEY not in ended["text"]
        assert up.cli("status").returncode == 0
        down = up.cli("down")
        assert down.returncode == 0
        assert "stopped; 1 runner is left: it ends 15 minutes after its last command" in down.stderr


class Watch:
    """Reads the environment of every process of the machine, again and again, with the rights of the test."""

    def __init__(self, word: bytes) -> None:
        self._word = word
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.found: set[str] = set()
        self.looks = 0

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def _look(self) -> None:
        while not self._stop.is_set():
            self.looks += 1
            for process in Path("/proc").iterdir():
                if process.name.isdecimal():
                    with contextlib.suppress(OSError):
                        if self._word in (process / "environ").read_bytes():
                            self.found.add((process / "cmdline").read_bytes().decode(errors="replace"))


def test_no_process_that_is_started_again_has_a_key_in_its_environment_for_a_moment(tmp_path: Path) -> None:
    """Not even before it can hide anything: tools may run while the agent service is started again."""
    key = f"{KEY}-{tmp_path.name}"
    environ = {"OPENAI_API_KEY": key, "FAIRLEAD_SECRET_PETS": key, "BRAVE_API_KEY": key}
    sets = ("agents.main.mode=allow-all",)
    with FairleadUp(tmp_path / "home", environ={**environ, "FAIRLEAD_MODEL": "demo"}, sets=sets) as up:
        twin = subprocess.Popen(["sleep", "60"], env={"OPENAI_API_KEY": key})
        try:
            with Watch(key.encode()) as watch:
                for name in ("agent", "tools", "gateway", "scheduler", "agent"):
                    up.kill(name)
                    up.wait_restarted(name)
                    up.wait_ready(60)
        finally:
            twin.kill()
            twin.wait()
        assert watch.looks > 20
        assert watch.found == {"sleep\x0060\x00"}
        assert up.ask("hello")["outcome"] == "completed"
