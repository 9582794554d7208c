"""What a hostile command can use up in a container (SB-14, SB-15, SB-21); the next one still runs."""

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.attacks.docker_box import DockerBox
from tests.support import containers

pytestmark = [pytest.mark.docker, pytest.mark.skipif(bool(containers.missing()), reason=containers.missing())]


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[DockerBox]:
    made = DockerBox(tmp_path)
    yield made
    made.close()


async def test_fork_bomb_is_bounded_and_killed_with_its_call(box: DockerBox) -> None:
    bomb = "import os, sys\nwhile True:\n    try:\n        os.fork()\n    except OSError: pass\n"
    (box.work / "bomb.py").write_text(bomb)
    began = time.monotonic()
    outcome = await box.run("bash", timeout_s=1.0, command="python3 bomb.py")
    assert outcome["status"] in ("timed_out", "unknown")
    assert time.monotonic() - began < 20
    assert await box.bash("echo on; cat /proc/[0-9]*/comm | grep -c python3 || true", timeout_s=20) in (
        "on\n1\n",  # the runner itself
        "on\n2\n",
        "on\n3\n",
        "on\n4\n",
    )


async def test_memory_is_bounded_and_the_runner_lives_on(box: DockerBox) -> None:
    await box.bash("true")
    before = box.container()["Id"]
    outcome = await box.run(
        "bash", command="python3 -c \"x = b'x' * (600 << 20); print('had' + ' it')\"; echo $?"
    )
    assert "had it" not in outcome["content"][0]["text"]
    assert await box.bash("python3 -c \"print(len(b'x' * (30 << 20)))\"") == f"{30 << 20}\n"
    assert box.container()["Id"] == before


async def test_scratch_space_files_and_descriptors_are_bounded(box: DockerBox) -> None:
    said = await box.bash("head -c 40M /dev/zero > /tmp/big; stat -c %s /tmp/big; rm /tmp/big")
    assert "No space left on device" in said
    assert int(said.split()[-1]) <= 16 << 20
    assert await box.bash("head -c 4M /dev/zero > /tmp/small; stat -c %s /tmp/small") == f"{4 << 20}\n"
    many = "import os\nkept = []\nwhile True:\n    kept.append(os.open('/dev/null', 0))\n"
    assert "Too many open files" in await box.script("many.py", many)
    inodes = (
        "import os\ntry:\n    for n in range(400_000):\n        os.mkdir(f'/tmp/{n}')\n"
        "except OSError as error:\n    print(n < 20_000, error.strerror)\n"
    )
    said = await box.script("inodes.py", inodes)
    assert said == "True No space left on device\n"
    assert await box.bash("rm -rf /tmp/*; touch /tmp/x && echo on") == "on\n"
    for path in ("/x", "/usr/x", "/etc/x", "/var/tmp/x", "/run/x", "/fairlead/x", "/home/x"):
        assert "Read-only file system" in await box.bash(f"mkdir {path}") or path == "/home/x"


async def test_core_files_are_off(box: DockerBox) -> None:
    assert await box.bash("ulimit -c; ulimit -Hc; ulimit -n") == "0\n0\n128\n"


async def test_command_that_ignores_its_end_is_killed_with_all_it_started(box: DockerBox) -> None:
    await box.bash("true")
    began = time.monotonic()
    outcome = await box.run(
        "bash",
        timeout_s=0.5,
        command="trap '' TERM HUP INT; (trap '' TERM; setsid sleep 300) & while :; do sleep 300; done",
    )
    assert outcome["status"] == "timed_out"
    assert time.monotonic() - began < 30
    # What ended between the listing and the reading is no error here.
    assert await box.bash("cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep") == "0\n[exit code 1]"


async def test_much_and_odd_output_is_bounded(box: DockerBox) -> None:
    outcome = await box.run("bash", command="head -c 20M /dev/urandom; yes | head -n 1000000")
    assert outcome["output_bytes"] > 20_000_000
    assert len(json.dumps(outcome)) < 400_000
    assert await box.bash("echo on") == "on\n"


async def test_processor_time_is_shared_out(box: DockerBox) -> None:
    """Two busy loops of one container get one processor, not two."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("one processor is all there is")
    burn = (
        "import os, time\nchild = os.fork()\nend = time.monotonic() + 1.5\n"
        "while time.monotonic() < end: pass\nprint(time.process_time(), flush=True)\n"
        "if child: os.wait()\n"  # one that is left is told of behind the output
    )
    used = [float(each) for each in (await box.script("burn.py", burn)).split()]
    assert sum(used) < 1.5 * 1.35
