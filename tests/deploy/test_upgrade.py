"""Other images under load: those of some commits ago, and back to those of now. Nothing is lost."""

import asyncio
import os
import subprocess
from collections.abc import Iterator

import pytest
from docker.errors import DockerException

from tests.deploy.deployment import NEEDS_COMPOSE, ROOT, SERVICES, SETTINGS, VERSION, Deployment
from tests.deploy.load import loaded
from tests.support.containers import api

pytestmark = NEEDS_COMPOSE

OLDER = os.environ.get("FAIRLEAD_OLDER") or "HEAD~10"
TAG = "test-older"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Tag of the images that the sources of some commits ago make."""
    named = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{OLDER}^{{commit}}"]
    found = subprocess.run(named, capture_output=True, text=True, timeout=20, check=False)
    if found.returncode:
        pytest.skip(f"this clone does not go back to {OLDER}")
    folder = tmp_path_factory.mktemp("older")
    archive = folder / "sources.tar"
    git = ["git", "-C", str(ROOT), "archive", "-o", str(archive), found.stdout.strip()]
    subprocess.run(git, check=True, timeout=60)
    sources = folder / "sources"
    sources.mkdir()
    subprocess.run(["tar", "-x", "-f", archive, "-C", sources], check=True, timeout=60)
    Deployment(folder, SETTINGS, root=sources, version=TAG).build()
    yield TAG
    for service in SERVICES:
        try:
            api().remove_image(f"fairlead-{service}:{TAG}")
        except DockerException:
            continue


async def test_images_of_another_version_take_over_under_load_and_give_back(
    deployment: Deployment, older: str
) -> None:
    try:
        async with loaded(deployment, "versions", pause_s=0.5) as load:
            for tag in (older, VERSION):
                deployment.set("FAIRLEAD_VERSION", tag)
                await asyncio.to_thread(deployment.compose, "up", "-d", "--wait", timeout_s=200)
                assert _tags(deployment) == {tag}
                await load.more(6)
    finally:
        deployment.set("FAIRLEAD_VERSION", VERSION)
    assert load.statuses == {"ok"}


def _tags(deployment: Deployment) -> set[str]:
    """Of the images that run; what other profiles started is not made again."""
    found = [each for service in SERVICES for each in deployment.containers(service)]
    return {each["Config"]["Image"].rpartition(":")[2] for each in found}
