"""What the NATS image does before its server: streams of an earlier version get the account there is now."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "nats" / "fairlead-nats"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The image's entrypoint, with its folders here and a server that only says so."""
    for folder in ("data", "fairlead-store", "fairlead-users", "secrets", "bin"):
        (tmp_path / folder).mkdir()
    server = tmp_path / "bin" / "nats-server"
    server.write_text("#!/bin/sh\necho started\n")
    server.chmod(0o755)
    text = SCRIPT.read_text().replace("store=/data\n", f"store={tmp_path}/data\n")
    made = tmp_path / "fairlead-nats"
    made.write_text(text.replace("=/run/", f"={tmp_path}/"))
    (tmp_path / "secrets" / "nats-users.conf").write_text("given\n")
    return made


def start(script: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    path = f"{script.parent}/bin:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", script, "start"],
        env={"PATH": path, **environ},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_streams_of_the_one_account_become_those_of_fairlead(script: Path) -> None:
    former, now = (script.parent / "data" / "jetstream" / account for account in ("$G", "FAIRLEAD"))
    assert start(script).stdout == "started\n"
    (former / "streams" / "SESSIONS").mkdir(parents=True)
    assert start(script).stdout == "started\n"
    assert (now / "streams" / "SESSIONS").is_dir()
    assert not former.exists()


def test_two_sets_of_streams_are_left_for_their_owner_to_choose(script: Path) -> None:
    for account in ("$G", "FAIRLEAD"):
        (script.parent / "data" / "jetstream" / account / "streams").mkdir(parents=True)
    refused = start(script)
    assert refused.returncode == 78
    assert "move one of them away" in refused.stderr
    assert "started" not in refused.stdout


@pytest.mark.parametrize(
    ("basis", "door", "chosen"),
    [
        ("given\n", "yes", "fairlead-users/users.conf"),
        ("given before\n", "yes", "secrets/nats-users.conf"),  # make-secrets was there since
        (None, "yes", "secrets/nats-users.conf"),
        ("given\n", "", "secrets/nats-users.conf"),
    ],
)
def test_the_users_with_the_hosts_are_taken_if_they_follow_from_those_that_are_given(
    script: Path, basis: str | None, door: str, chosen: str
) -> None:
    folder = script.parent
    if basis is not None:
        head = f"# of {hashlib.sha256(basis.encode()).hexdigest()}\n"
        (folder / "fairlead-users" / "users.conf").write_text(f"{head}the same\n")
    assert start(script, FAIRLEAD_DOOR=door).stdout == "started\n"
    assert (folder / "fairlead-store" / "users.conf").read_text().strip() == f'include "../{chosen}"'
    assert ("leafnodes" in (folder / "fairlead-store" / "link.conf").read_text()) == (door == "yes")
