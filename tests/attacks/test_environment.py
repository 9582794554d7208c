"""Attacks on the environment of commands (EN-01 to EN-05), in every kind of sandbox of this machine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.sandboxed import Sandboxed
from tests.support import boxes

pytestmark = pytest.mark.process

CANARY = "canary-4f1c0e"
ALLOWED = {"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "FAIRLEAD_CALL_ID", "FAIRLEAD_RUNNER"}
OF_THE_SHELL = {"PWD", "SHLVL", "_", "OLDPWD"}

KINDS = [
    "local",
    pytest.param("bubblewrap", marks=pytest.mark.skipif(bool(boxes.MISSING), reason=boxes.MISSING)),
]


@pytest.fixture(params=KINDS)
def box(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sandboxed]:
    """Started by a service that has secrets in its environment and in an open file."""
    for name in ("FAIRLEAD_NATS_PASSWORD", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "LD_LIBRARY_PATH_X"):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("BASH_ENV", f"/nowhere/{CANARY}")
    held = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(held, True)
    made = Sandboxed(tmp_path, request.param)
    yield made
    made.close()
    os.close(held)


def test_en_01_nothing_secret_is_in_reach_of_a_command(box: Sandboxed) -> None:
    said = box.bash(
        "env; cat /proc/self/environ /proc/$PPID/environ 2>&1; cat /proc/self/mountinfo /proc/self/cmdline;"
        " p=$PPID; while [ ${p:-0} -gt 0 ]; do tr '\\0' '\\n' < /proc/$p/cmdline;"
        " [ $p = 1 ] && break; p=$(awk '/^PPid/{print $2}' /proc/$p/status); [ $p = 1 ] && break; done;"
        " ls -l /proc/self/fd /proc/$PPID/fd 2>&1"
    )
    assert CANARY not in said
    assert "PATH=" in said


def test_en_01_memory_and_files_of_the_one_who_watches_are_closed(box: Sandboxed) -> None:
    if box.kind == "local" and os.geteuid() == 0:
        pytest.skip("root reads everything: local commands have the rights of the one who runs Fairlead")
    said = box.bash(
        "cat /proc/$PPID/environ; cat /proc/$PPID/fd/*; head -c 1 /proc/$PPID/mem; readlink /proc/$PPID/cwd;"
        " readlink /proc/$PPID/root; kill -STOP $PPID && echo stopped"
    )
    assert said.count("Permission denied") + said.count("Input/output error") >= 3
    assert "stopped" not in said or box.kind == "local"


def test_en_02_environment_is_built_from_a_list(box: Sandboxed) -> None:
    names = {line.partition("=")[0] for line in box.bash("env").splitlines() if "=" in line}
    unknown = {name for name in names - ALLOWED - OF_THE_SHELL if not name.startswith("LC_")}
    assert unknown == set()
    assert {"PATH", "HOME", "TERM"} <= names


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "NODE_OPTIONS",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
        "BASH_ENV",
        "ENV",
        "PROMPT_COMMAND",
        "IFS",
        "PERL5OPT",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "FAIRLEAD_CALL_ID",
        "path",
    ],
)
def test_en_03_variables_that_make_programs_run_something_are_refused(name: str) -> None:
    from fairlead_tools.runner.process import environment

    with pytest.raises(ValueError, match="may not be set"):
        environment.build({"PATH": "/bin"}, {name: "x"}, "call")
    assert name not in environment.plain({name: "x"})  # which is all that commands get of the runner's own
    assert environment.build(environment.plain({name: "x"}), {}, "call").get(name, "") in ("", "call")


def test_en_03_twin_language_and_time_zone_can_be_set() -> None:
    from fairlead_tools.runner.process import environment

    made = environment.build({}, {"LANG": "de_DE.UTF-8", "TZ": "UTC", "LC_TIME": "C"}, "call")
    assert (made["LANG"], made["TZ"], made["LC_TIME"]) == ("de_DE.UTF-8", "UTC", "C")


def test_en_04_no_core_files(box: Sandboxed) -> None:
    said = box.bash("ulimit -c; ulimit -Hc; ulimit -c unlimited; bash -c 'kill -SEGV $$'; ls -a")
    assert said.startswith("0\n0\n")
    assert "core" not in said.replace("core file size", "").replace("core dumped", "")


def test_en_05_command_has_three_open_files(box: Sandboxed) -> None:
    count = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
    for _ in range(2):  # what a guard was handed for its second command comes another way than for its first
        said = box.bash(f'python3 -I -S -c "{count}" || {sys.executable} -I -S -c "{count}"')
        assert said in ("[0, 1, 2, 3]\n", "[0, 1, 2]\n"), "3 is the listing itself"


def test_en_05_twin_standard_streams_work(box: Sandboxed) -> None:
    assert box.bash("cat; echo out; echo err >&2") == "out\nerr\n"


def test_no_new_privileges_hold_everywhere(box: Sandboxed) -> None:
    assert "NoNewPrivs:\t1" in box.bash("grep NoNewPrivs /proc/self/status")
