"""A deployment is backed up while it works; its streams and logins are lost, and put back."""

import json
from pathlib import Path

import pytest

from tests.deploy.asking import ask, told
from tests.deploy.deployment import NEEDS_COMPOSE, Deployment

pytestmark = NEEDS_COMPOSE


async def test_a_deployment_whose_volumes_were_lost_goes_on_with_its_sessions(
    deployment: Deployment, tmp_path: Path
) -> None:
    deployment.set("FAIRLEAD_BACKUPS", str(tmp_path))
    async with deployment.gateway() as gateway:
        await ask(gateway, "kept", "run: echo before the backup")
        assert (await told(gateway, "kept")).outcomes == ["completed"]
    made = json.loads(
        deployment.compose("run", "--rm", "-T", "backup", "backup", "--to", "/backups", "--json")
    )
    file = Path(made["file"]).name
    assert made["files"] == ["auth.json"]
    assert (tmp_path / file).stat().st_mode & 0o777 == 0o600

    deployment.compose("--profile", "*", "stop")  # an executor of containers of its own too
    for service, folder in (("nats", "/data"), ("gateway", "/var/lib/fairlead")):
        wipe = ("run", "--rm", "-T", "--no-deps", "--entrypoint", "sh", service)
        deployment.compose(*wipe, "-c", f"rm -rf {folder}/* && ls {folder}")
    deployment.compose("up", "-d", "--wait", "nats")
    restore = ("run", "--rm", "-T", "backup", "restore", f"/backups/{file}", "--json")
    restored = json.loads(deployment.compose(*restore))
    assert restored["id"] == made["id"]
    deployment.up()

    async with deployment.gateway() as gateway:
        assert (await told(gateway, "kept")).outcomes == ["completed"]
        body = {"text": "run: echo after the restore", "key": "after"}
        sent = await gateway.request("POST", "/api/sessions/kept/prompt", body)
        assert sent.status == 202, sent
        done = await told(gateway, "kept", runs=2)
    assert done.outcomes == ["completed", "completed"]
    assert "after the restore" in done.answer


def test_a_restore_into_a_deployment_that_works_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    deployment.set("FAIRLEAD_BACKUPS", str(tmp_path))
    made = json.loads(
        deployment.compose("run", "--rm", "-T", "backup", "backup", "--to", "/backups", "--json")
    )
    restore = ("run", "--rm", "-T", "backup", "restore", f"/backups/{Path(made['file']).name}")
    with pytest.raises(AssertionError, match=r"services are running on this server \(.*fairlead-gateway"):
        deployment.compose(*restore)
    assert "fairlead-gateway" in deployment.run_in("gateway", "fairlead", "status")
