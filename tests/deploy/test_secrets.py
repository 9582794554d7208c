"""What `make secrets` makes."""

import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

from fairlead_common.permissions import nkey, rights
from fairlead_remote.nats_users.accounts import User, render_accounts
from tests.deploy.deployment import ROOT
from tests.support.nats_server import binary

USERS = ("gateway", "agent", "tools", "boxes", "scheduler", "webui", "provisioner", "operator")


def _make(folder: Path, **environ: str) -> dict[str, str]:
    subprocess.run(
        [ROOT / "scripts/make-secrets", folder],
        env={"PATH": os.environ["PATH"], **environ},
        check=True,
        timeout=60,
        capture_output=True,
    )
    return {each.name: each.read_text() for each in folder.iterdir()}


def test_secrets_that_exist_are_kept_and_the_server_knows_each(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    first = _make(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(first["gateway-token"]) >= 32
    assert _make(folder) == first
    (folder / "nats-agent.nk").unlink()
    second = _make(folder)
    changed = {name for name in first if first[name] != second[name]}
    assert changed == {"nats-agent.nk", "nats-agent.pub", "nats-users.conf"}
    for user in USERS:
        key = nkey.public_key(second[f"nats-{user}.nk"])
        assert second["nats-users.conf"].count(f"nkey: {key}\n") == 1
        assert second[f"nats-{user}.pub"].strip() == key


def test_without_their_public_halves_all_services_get_new_keys_and_other_systems_keep_theirs(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "secrets"
    first = _make(folder)
    (folder / "nats-alerts.nk").write_text("of another system\n")
    for each in folder.glob("nats-*.pub"):
        each.unlink()
    second = _make(folder)
    kept = {name for name, text in second.items() if first.get(name) == text}
    assert kept == {"gateway-token"}
    assert second["nats-alerts.nk"] == "of another system\n"
    for user in USERS:
        assert first[f"nats-{user}.pub"].strip() not in second["nats-users.conf"]
        key = nkey.public_key(second[f"nats-{user}.nk"])
        assert second["nats-users.conf"].count(f"nkey: {key}\n") == 1


def test_the_server_takes_the_users_with_the_rights_of_the_table(tmp_path: Path) -> None:
    made = _make(tmp_path / "secrets", FAIRLEAD_HOST="farm")
    config = tmp_path / "secrets" / "nats-users.conf"
    done = subprocess.run([binary(), "-t", "-c", config], capture_output=True, timeout=10, check=False)
    assert done.returncode == 0, done.stderr
    table = {
        "gateway": rights.gateway(),
        "agent": rights.agent(),
        "tools": rights.executor("farm"),
        "boxes": rights.executor("farm-boxes"),
        "scheduler": rights.scheduler(),
        "webui": rights.webui(),
        "provisioner": rights.provisioner(),
        "operator": rights.operator(),
    }
    users = [User(name, nkey.public_key(made[f"nats-{name}.nk"]), may) for name, may in table.items()]
    assert made["nats-users.conf"].endswith(render_accounts(users))


def test_the_file_that_secrets_are_put_into_follows_from_the_table() -> None:
    loaded = runpy.run_path(str(ROOT / "scripts" / "render-rights"))
    assert loaded["rendered"]() == loaded["TARGET"].read_text(), "run scripts/render-rights"


def test_keys_are_made_without_python(tmp_path: Path) -> None:
    """Only a shell, the usual small programs, and openssl."""
    programs = tmp_path / "bin"
    programs.mkdir()
    small = "sh sed awk od tr cat chmod ln rm mv mkdir head tail dirname grep stat openssl"
    for name in re.findall(r"\w+", small):
        (programs / name).symlink_to(str(shutil.which(name)))
    made = _make(tmp_path / "secrets", PATH=str(programs))
    for user in USERS:
        assert nkey.public_key(made[f"nats-{user}.nk"]) == made[f"nats-{user}.pub"].strip()


def test_passwords_of_an_earlier_version_are_removed_and_that_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in ("nats-gateway", "nats-passwords.conf", "gateway-token"):
        (folder / name).write_text("old")
    done = subprocess.run(
        [ROOT / "scripts/make-secrets", folder], check=True, timeout=60, capture_output=True, text=True
    )
    assert "removed" in done.stdout
    assert not (folder / "nats-gateway").exists()
    assert not (folder / "nats-passwords.conf").exists()
    assert (folder / "gateway-token").read_text() == "old"


def test_no_seed_is_an_argument_of_a_process(tmp_path: Path) -> None:
    seen = tmp_path / "arguments"
    watching = tmp_path / "bin" / "python3"
    watching.parent.mkdir()
    watching.write_text(f'#!/bin/sh\necho "$@" >>{seen}\nexec {shutil.which("python3")} "$@"\n')
    watching.chmod(0o755)
    _make(tmp_path / "secrets", PATH=f"{watching.parent}:{os.environ['PATH']}")
    assert seen.read_text().split() == ["scripts/ed25519"] * len(USERS)
