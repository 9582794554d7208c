"""Other images under load: those of some commits ago, and back to those of now. Nothing is lost."""

import asyncio
from collections.abc import Iterator

import pytest
from docker.errors import DockerException

from tests.deploy.build_images import OLDER, OLDER_TAG, build_older
from tests.deploy.deployment import NEEDS_COMPOSE, SERVICES, VERSION, Deployment
from tests.deploy.load import loaded
from tests.support.containers import api

pytestmark = NEEDS_COMPOSE


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Tag of the images that the sources of some commits ago make."""
    if not build_older(tmp_path_factory.mktemp("older")):
        pytest.skip(f"this clone does not go back to {OLDER}")
    yield OLDER_TAG
    for service in SERVICES:
        try:
            api().remove_image(f"fairlead-{service}:{OLDER_TAG}")
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
