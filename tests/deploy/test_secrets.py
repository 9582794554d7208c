"""What `make secrets` makes."""

import subprocess
from pathlib import Path

from tests.deploy.deployment import ROOT


def _make(folder: Path) -> dict[str, str]:
    subprocess.run([ROOT / "tools/make-secrets", folder], check=True, timeout=20, capture_output=True)
    return {each.name: each.read_text() for each in folder.iterdir()}


def test_secrets_that_exist_are_kept_and_the_server_knows_each(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    first = _make(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(first["gateway-token"]) >= 32
    assert _make(folder) == first
    (folder / "nats-agent").unlink()
    second = _make(folder)
    assert second["nats-agent"] != first["nats-agent"]
    assert f'AGENT_PASSWORD: "{second["nats-agent"]}"' in second["nats-passwords.conf"]
    assert {name for name in first if first[name] != second[name]} == {"nats-agent", "nats-passwords.conf"}
