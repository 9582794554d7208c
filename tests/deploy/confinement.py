"""What every container of ours is held to."""

from pathlib import Path

import pytest

from tests.deploy.deployment import Deployment


def must_be_confined(deployment: Deployment, service: str) -> None:
    """No one special, without capabilities, with limits and a root that is read only.

    Raises:
        AssertionError: the container of the service is not.
    """
    (found,) = deployment.containers(service)
    host = found["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert not host["CapAdd"]
    assert any(each.startswith("no-new-privileges") for each in host["SecurityOpt"])
    assert not host["Privileged"]
    assert host["Memory"] > 0
    assert host["NanoCpus"] > 0
    assert host["PidsLimit"] > 0
    assert host["RestartPolicy"]["Name"] == "unless-stopped"
    status = Path(f"/proc/{found['State']['Pid']}/status")
    told_inside = status.read_text() if status.exists() else ""
    for line in ("Uid:\t10001\t10001", "Gid:\t10001\t10001", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in told_inside
    assert not any("docker.sock" in mount["Source"] for mount in found["Mounts"])
    with pytest.raises(AssertionError, match="Read-only file system"):
        deployment.run_in(service, "sh", "-c", "echo x > /etc/x")
